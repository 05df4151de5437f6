#include "study/flops.h"

namespace drivetrain::study {

std::vector<Convention> conventions(const ModelShape& m, bool recomputes) {
  const double L = static_cast<double>(m.layers), h = static_cast<double>(m.hidden), V = static_cast<double>(m.vocab);
  const double a = static_cast<double>(m.heads), k = static_cast<double>(m.groups), d = static_cast<double>(m.head_dim);
  const double I = static_cast<double>(m.ffn), s = static_cast<double>(m.seq_length), P = m.parameters;
  const double c = recomputes ? 4 : 3, q = m.gated && m.ffn >= 4 * m.hidden ? 32 : 24;
  const double head = 6 * h * V, square = h * h;
  const double groups = m.groups > 0 ? static_cast<double>(2 / (m.heads / m.groups)) : 2;  // divided as integers there
  return {
      {"internevo", "c layers, gated MLP of the configured width, attention in full",
       c * L * ((8 + 6 * I / h) * square + 4 * s * h) + head},
      {"megatron_sc21", "MLP of 4h, attention in full",
       24 * c * L * square * (1 + s / (6 * h) + V / ((recomputes ? 16 : 12) * L * h))},
      {"megatron_bigscience",
       "q c L h^2 with q = 24, or 32 where a gated MLP is 4h wide; the output layer as if recomputed",
       q * c * L * square * (1 + s / (6 * h) + V / (16 * L * h))},
      {"xtuner", "gated MLP, causal attention by half, key and value heads in full",
       c * L * (8 * square + 2 * s * h + 6 * h * I) + head},
      {"ml_engineering", "2 c per parameter", 2 * c * P},
      {"megatron_lm", "grouped heads, causal attention by half, no recomputation",
       6 * L * (h * d * (a + 2 * k) + a * d * h + 3 * h * I) + head + 6 * L * a * d * s},
      {"megatron_deepspeed", "the output layer recomputed too",
       2 * c * (L * ((2 + groups) * square + 2 * s * h + 3 * h * I) + h * V)},
      {"llama_factory", "grouped heads, attention in full",
       c * L * (6 * h * I + 4 * square + 4 * square * (a > 0 ? k / a : 1) + 4 * s * h) + head},
      {"palm", "6 per parameter and attention in full, no recomputation", 6 * P + 12 * L * h * s},
  };
}

double hardware_flops(double model_flops, const ModelShape& shape, double fraction) {
  const double head = 6 * static_cast<double>(shape.hidden) * static_cast<double>(shape.vocab);
  return (model_flops - head) * (3 + fraction) / 3 + head;
}

}  // namespace drivetrain::study
