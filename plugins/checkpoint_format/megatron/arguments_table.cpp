// Source: megatron/training/arguments.py, megatron/core/transformer/transformer_config.py, and for old names
// Megatron-DeepSpeed's megatron/arguments.py.
#include "arguments.h"

namespace drivetrain::megatron {
namespace {

constexpr const char* kFalse = "[false]";
constexpr const char* kNone = "[]";

constexpr Argument kArguments[] = {
    {"num_layers|encoder_num_layers", Use::compared, "", ""},
    {"hidden_size", Use::compared, "", ""},
    {"ffn_hidden_size", Use::compared, "", ""},
    {"num_attention_heads", Use::compared, "", ""},
    {"kv_channels", Use::compared, "", ""},
    {"group_query_attention", Use::compared, "", "false: as many groups as heads"},
    {"num_query_groups|num_key_value_heads", Use::compared, "", ""},
    {"normalization", Use::compared, "", ""},
    {"norm_epsilon|layernorm_epsilon", Use::compared, "", ""},
    {"position_embedding_type", Use::compared, "", ""},
    {"use_rotary_position_embeddings", Use::compared, "", "an old way to say rope"},
    {"add_position_embedding", Use::compared, "", "false without rope: no positions"},
    {"rotary_base|rotary_position_embeddings_theta", Use::compared, "", "of rope"},
    {"use_rope_scaling", Use::compared, "", "of rope: that of Llama 3.1, for sequences that were of 8192 tokens"},
    {"rope_scaling_factor", Use::compared, "", "with use_rope_scaling"},
    {"add_bias_linear", Use::compared, "", ""},
    {"disable_bias_linear", Use::compared, "", "the opposite, in old files"},
    {"add_qkv_bias", Use::compared, "", ""},
    {"untie_embeddings_and_output_weights", Use::compared, "", ""},
    {"swiglu", Use::compared, "", "the activation"},
    {"squared_relu", Use::compared, "", "the activation"},
    {"quick_geglu", Use::compared, "", "the activation"},
    {"openai_gelu", Use::compared, "", "the activation: GELU by tanh"},
    {"onnx_safe", Use::compared, "", "the activation: GELU by erf"},
    {"bias_gelu_fusion", Use::compared, "", "the activation: GELU by tanh if true, else by erf"},
    {"softmax_scale", Use::compared, "", "of attention; null: 1 / sqrt(kv_channels)"},

    {"apply_layernorm_1p|layernorm_zero_centered_gamma", Use::refused, kFalse, "weights of norms are stored less 1"},
    {"apply_residual_connection_post_layernorm", Use::refused, kFalse, "the residual begins behind the norm"},
    {"rotary_interleaved", Use::refused, kFalse, "rotary embeddings turn neighbouring elements of a head"},
    {"rotary_percent", Use::refused, "[1]", "rotary embeddings turn a part of each head"},
    {"rotary_seq_len_interpolation_factor", Use::refused, "[1]", "positions are divided"},
    {"rope_type", Use::refused, "[\"rope\"]", "rotary embeddings are stretched another way"},
    {"rotary_base_per_layer", Use::refused, kNone, "every layer has a rotary base of its own"},
    {"no_rope_freq", Use::refused, "[0]", "some layers have no rotary embedding"},
    {"multi_latent_attention", Use::refused, kFalse, "keys and values are compressed"},
    {"num_experts|num_moe_experts", Use::refused, "[0, [1]]", "mixtures of experts are not read"},
    {"qk_layernorm", Use::refused, kFalse, "queries and keys are normalized"},
    {"qk_l2_norm", Use::refused, kFalse, "queries and keys are normalized"},
    {"window_size", Use::refused, "[[-1, -1], [-1, 0]]", "attention sees a window"},
    {"softmax_type", Use::refused, "[\"vanilla\"]", "attention's softmax has a further term"},
    {"attention_output_gate", Use::refused, kFalse, "attention's output is gated"},
    {"head_wise_attn_gate", Use::refused, kFalse, "attention's output is gated"},
    {"experimental_attention_variant", Use::refused, kNone, "attention is another one"},
    {"glu_linear_offset", Use::refused, "[0]", "the gated activation has an offset"},
    {"activation_func_clamp_value", Use::refused, kNone, "the activation is clamped"},
    {"mtp_num_layers", Use::refused, "[0]", "there are layers that predict further tokens"},
    {"decoder_num_layers", Use::refused, "[0]", "there is an encoder and a decoder"},
    {"is_hybrid_model", Use::refused, kFalse, "some layers are no transformer's"},
    {"hybrid_layer_pattern", Use::refused, kNone, "some layers are no transformer's"},
    {"hybrid_override_pattern", Use::refused, kNone, "some layers are no transformer's"},
    {"hybrid_attention_ratio", Use::refused, "[0]", "some layers are no transformer's"},
    {"hybrid_mlp_ratio", Use::refused, "[0]", "some layers are no transformer's"},
    {"spec", Use::refused, kNone, "layers are of a class of the user's"},
    {"heterogeneous_layers_config_path", Use::refused, kNone, "layers differ from each other"},
    {"heterogeneous_layers_config_encoded_json", Use::refused, kNone, "layers differ from each other"},
    {"heterogeneous_block_specs", Use::refused, kFalse, "layers differ from each other"},
    {"enable_hyper_connections", Use::refused, kFalse, "there are several residual streams"},
    {"use_mup", Use::refused, kFalse, "embeddings and logits are scaled"},
    {"retro_add_retriever", Use::refused, kFalse, "layers look texts up"},

    {"max_position_embeddings|.*seq_length(s|_per_sample)?|.*vocab.*|.*tokenizer.*|tiktoken.*|merge_file",
     Use::no_effect, "", "sizes that tensors show; tokenizer"},
    {".*(lr|decay|momentum|grad|grads|optimizer|opt_param_scheduler)(_.*)?|adam.*|betas|sgd.*|muon.*|exp_avg.*|"
     "main_params_dtype|warmup",
     Use::no_effect, "", "optimizer and learning rate"},
    {"(.*_)?(batch_size|iters|iter_per_epoch|interval|samples|dropout|seed|random_init)|train_.*|eval_.*|test_.*|"
     "valid_.*|(full|multiple)_validation.*|skip_train|exit_.*|iteration|decrease_batch.*|init_method.*|"
     "embedding_init.*|perform_initialization|use_cpu_init.*|calculate_per_token_loss|check_for_.*|rerun_.*|"
     "error_injection.*|finetune|pretrained_checkpoint|mtp_loss_.*|loss_.*|hysteresis",
     Use::no_effect, "", "training"},
    {".*(tensor|model|pipeline|data|context|sequence|expert)_parallel.*|.*pipeline.*|(local_)?rank|.*_rank_id|world_"
     "size|"
     ".*overlap.*|ddp_.*|.*nccl.*|tp_.*|cp_.*|.*fsdp.*|distributed_.*|num_distributed.*|use_distributed.*|"
     "account_for_.*|scatter_gather.*|use_ring_.*|lazy_mpu.*|.*sharp.*|.*virtual.*|microbatch_group.*|"
     "use_tp_pp_dp_mapping|high_priority_stream.*|defer_embedding.*|wgrad_.*|delay_.*|suggested_.*|"
     "enable_gloo.*|hierarchical_.*|align_.*|keep_fp8.*|fully_parallel.*",
     Use::no_effect, "", "parallelism"},
    {"save.*|no_save.*|load.*|no_load.*|.*ckpt.*|use_checkpoint.*|exit_on_missing.*|async_save|.*replication.*|"
     "non_persistent.*|.*path|.*(_dir|_prefix)|split|data.*|dataloader.*|mock_data|mmap.*|num_workers|"
     "num_dataset.*|reset_.*|eod_mask.*|create_attention_mask.*|.*cache.*|object_storage.*|mid_level.*|s3_.*|"
     "sft.*|fim_.*|goldfish.*|renormalize.*|per_split.*|defer_npy.*|sequences_per.*",
     Use::no_effect, "", "files and data"},
    {"(.*_)?(log|logs|logger|logging)(_.*)?|tensorboard.*|wandb.*|timing.*|barrier.*|app_tag.*|adlr_.*|.*profile.*|"
     "record_memory.*|memory_.*|"
     "straggler.*|.*heartbeat.*|run_workload.*|config_logger.*|inprocess.*|enable_ft.*|ft_.*|yaml_cfg|"
     "result_rejected.*|nvtx.*|use_pytorch_profiler|mfu.*",
     Use::no_effect, "", "reports"},
    {"(b|f)p(4|8|16|32)(_.*)?|.*_(in|to)_(b|f)(p|loat)?(16|32)|.*bf16|(initial|min)_loss_scale|params_dtype|"
     "apply_query_key_layer_scaling|.*fusion.*|use_flash.*|attention_backend|transformer_impl|no_persist.*|"
     "recompute.*|checkpoint_activations.*|checkpoint_num_layers|distribute_saved.*|deterministic.*|manual_gc.*|"
     ".*cuda_?graph.*|empty_unused.*|.*offload.*|.*rng_tracker.*|symmetric_.*|flash_decode|use_te.*|te_.*|"
     "disable_symmetric.*|disable_bf16.*|disable_jit.*|disable_mamba.*|batch_invariant.*|cross_entropy.*|"
     "fine_grained.*|use_transformer_engine.*|use_legacy_models|use_mcore_models|deprecated_.*|legacy_.*|"
     "use_kitchen.*|kitchen.*|quant.*|first_last_layers.*|num_layers_at_.*|fuse_.*|clone_scatter.*|"
     "variable_seq.*|mlp_chunks.*|embedding_weights_in_fp32",
     Use::no_effect, "", "precision, kernels and memory"},
    {"moe.*|expert.*|mamba.*|q_lora.*|kv_lora.*|qk_head_dim|qk_pos_emb.*|v_head_dim|rotary_scaling_factor|mscale.*|"
     "beta_(fast|slow)|original_max_position.*|yarn_.*|mrope.*|relative_attention.*|window_attn_skip_freq|"
     "bert.*|biencoder.*|ict_.*|retro_.*|retriever_.*|indexer_.*|dsa_.*|csa_.*|vision.*|dino_.*|swin_.*|img_.*|"
     "patch_dim|num_channels|num_classes|classes_fraction|mask_.*|short_seq_prob|query_in_block.*|titles_.*|"
     "use_one_sent.*|topk|mtp_use_.*|mtp_hybrid.*|mup_.*|linear_(attention|key|value|num|conv).*|gdn_.*|num_residual_"
     "streams|inference.*|"
     "max_tokens_to_oom|output_bert.*|rl_.*|grpo.*|perform_rl.*|langrl.*|export_.*|model_type|group_query.*|"
     "heterogeneous.*|hybrid_.*|sample_rate|head_lr_mult|qk_clip.*|cp_comm_type",
     Use::no_effect, "", "other kinds of models, and using a model"},
};

}  // namespace

std::span<const Argument> arguments() { return kArguments; }

}  // namespace drivetrain::megatron
