// Source: megatron/training/arguments.py, megatron/core/transformer/transformer_config.py, and for old names
// Megatron-DeepSpeed's megatron/arguments.py.
#include "arguments.h"

namespace drivetrain::megatron {
namespace {

using enum KeyUse;

constexpr const char* kFalse = "[false]";
constexpr const char* kNone = "[]";

constexpr KeyRow kArguments[] = {
    {"", "num_layers|encoder_num_layers", compared, ""},
    {"", "hidden_size", compared, ""},
    {"", "ffn_hidden_size", compared, ""},
    {"", "num_attention_heads", compared, ""},
    {"", "kv_channels", compared, ""},
    {"", "group_query_attention", compared, "false: as many groups as heads"},
    {"", "num_query_groups|num_key_value_heads", compared, ""},
    {"", "normalization", compared, ""},
    {"", "norm_epsilon|layernorm_epsilon", compared, ""},
    {"", "qk_layernorm", compared,
     "norms of queries and keys, of each head; with LayerNorm they are layer norms, which the model refuses"},
    {"", "position_embedding_type", compared, ""},
    {"", "use_rotary_position_embeddings", compared, "an old way to say rope"},
    {"", "add_position_embedding", compared, "false without rope: no positions"},
    {"", "rotary_base|rotary_position_embeddings_theta", compared, "of rope"},
    {"", "use_rope_scaling", compared, "of rope: that of Llama 3.1, for sequences that were of 8192 tokens"},
    {"", "rope_scaling_factor", compared, "with use_rope_scaling"},
    {"", "add_bias_linear", compared, ""},
    {"", "disable_bias_linear", compared, "the opposite, in old files"},
    {"", "add_qkv_bias", compared, ""},
    {"", "untie_embeddings_and_output_weights", compared, ""},
    {"", "swiglu", compared, "the activation"},
    {"", "squared_relu", compared, "the activation"},
    {"", "quick_geglu", compared, "the activation"},
    {"", "openai_gelu", compared, "the activation: GELU by tanh"},
    {"", "onnx_safe", compared, "the activation: GELU by erf"},
    {"", "bias_gelu_fusion", compared, "the activation: GELU by tanh if true, else by erf"},
    {"", "softmax_scale", compared, "of attention; null: 1 / sqrt(kv_channels)"},
    {"", "num_experts|num_moe_experts", compared, "0 and [1]: none"},
    {"", "moe_router_topk", compared, "with num_experts, as all below"},
    {"", "moe_ffn_hidden_size", compared, "null: ffn_hidden_size"},
    {"", "moe_shared_expert_intermediate_size", compared, ""},
    {"", "moe_shared_expert_gate", compared, ""},
    {"", "moe_layer_freq", compared, "n: every n-th layer from the first; or a list"},
    {"", "moe_router_score_function", compared, ""},
    {"", "moe_router_pre_softmax", compared, "false: softmax over the scores of the chosen experts"},
    {"", "moe_router_topk_scaling_factor", compared, ""},
    {"", "moe_router_num_groups", compared, ""},
    {"", "moe_router_group_topk", compared, ""},

    {"", "apply_layernorm_1p|layernorm_zero_centered_gamma", refused, "weights of norms are stored less 1", kFalse},
    {"", "apply_residual_connection_post_layernorm", refused, "the residual begins behind the norm", kFalse},
    {"", "rotary_interleaved", refused, "rotary embeddings turn neighbouring elements of a head", kFalse},
    {"", "rotary_percent", refused, "rotary embeddings turn a part of each head", "[1]"},
    {"", "rotary_seq_len_interpolation_factor", refused, "positions are divided", "[1]"},
    {"", "rope_type", refused, "rotary embeddings are stretched another way", "[\"rope\"]"},
    {"", "rotary_base_per_layer", refused, "every layer has a rotary base of its own", kNone},
    {"", "no_rope_freq", refused, "some layers have no rotary embedding", "[0]"},
    {"", "multi_latent_attention", refused, "keys and values are compressed", kFalse},
    {"", "moe_router_enable_expert_bias", refused, "the router has a bias for each expert", kFalse},
    {"", "moe_apply_probs_on_input", refused, "the router's weights multiply what experts read", kFalse},
    {"", "moe_expert_capacity_factor", refused, "experts take a limited number of tokens", kNone},
    {"", "moe_router_topk_limited_devices", refused, "a token's experts are of a limited number of ranks", "[0]"},
    {"", "moe_latent_size", refused, "experts read a projection", kNone},
    {"", "qk_l2_norm", refused, "queries and keys are normalized", kFalse},
    {"", "window_size", refused, "attention sees a window", "[[-1, -1], [-1, 0]]"},
    {"", "softmax_type", refused, "attention's softmax has a further term", "[\"vanilla\"]"},
    {"", "attention_output_gate", refused, "attention's output is gated", kFalse},
    {"", "head_wise_attn_gate", refused, "attention's output is gated", kFalse},
    {"", "experimental_attention_variant", refused, "attention is another one", kNone},
    {"", "glu_linear_offset", refused, "the gated activation has an offset", "[0]"},
    {"", "activation_func_clamp_value", refused, "the activation is clamped", kNone},
    {"", "mtp_num_layers", refused, "there are layers that predict further tokens", "[0]"},
    {"", "decoder_num_layers", refused, "there is an encoder and a decoder", "[0]"},
    {"", "is_hybrid_model", refused, "some layers are no transformer's", kFalse},
    {"", "hybrid_layer_pattern", refused, "some layers are no transformer's", kNone},
    {"", "hybrid_override_pattern", refused, "some layers are no transformer's", kNone},
    {"", "hybrid_attention_ratio", refused, "some layers are no transformer's", "[0]"},
    {"", "hybrid_mlp_ratio", refused, "some layers are no transformer's", "[0]"},
    {"", "spec", refused, "layers are of a class of the user's", kNone},
    {"", "heterogeneous_layers_config_path", refused, "layers differ from each other", kNone},
    {"", "heterogeneous_layers_config_encoded_json", refused, "layers differ from each other", kNone},
    {"", "heterogeneous_block_specs", refused, "layers differ from each other", kFalse},
    {"", "enable_hyper_connections", refused, "there are several residual streams", kFalse},
    {"", "use_mup", refused, "embeddings and logits are scaled", kFalse},
    {"", "retro_add_retriever", refused, "layers look texts up", kFalse},

    {kPatterns, "max_position_embeddings|.*seq_length(s|_per_sample)?|.*vocab.*|.*tokenizer.*|tiktoken.*|merge_file",
     no_effect, "sizes that tensors show; tokenizer"},
    {kPatterns,
     ".*(lr|decay|momentum|grad|grads|optimizer|opt_param_scheduler)(_.*)?|adam.*|betas|sgd.*|muon.*|exp_avg.*|"
     "main_params_dtype|warmup",
     no_effect, "optimizer and learning rate"},
    {kPatterns,
     "(.*_)?(batch_size|iters|iter_per_epoch|interval|samples|dropout|seed|random_init)|train_.*|eval_.*|test_.*|"
     "valid_.*|(full|multiple)_validation.*|skip_train|exit_.*|iteration|decrease_batch.*|init_method.*|"
     "embedding_init.*|perform_initialization|use_cpu_init.*|calculate_per_token_loss|check_for_.*|rerun_.*|"
     "error_injection.*|finetune|pretrained_checkpoint|mtp_loss_.*|loss_.*|hysteresis",
     no_effect, "training"},
    {kPatterns,
     ".*(tensor|model|pipeline|data|context|sequence|expert)_parallel.*|.*pipeline.*|(local_)?rank|.*_rank_id|world_"
     "size|"
     ".*overlap.*|ddp_.*|.*nccl.*|tp_.*|cp_.*|.*fsdp.*|distributed_.*|num_distributed.*|use_distributed.*|"
     "account_for_.*|scatter_gather.*|use_ring_.*|lazy_mpu.*|.*sharp.*|.*virtual.*|microbatch_group.*|"
     "use_tp_pp_dp_mapping|high_priority_stream.*|defer_embedding.*|wgrad_.*|delay_.*|suggested_.*|"
     "enable_gloo.*|hierarchical_.*|align_.*|keep_fp8.*|fully_parallel.*",
     no_effect, "parallelism"},
    {kPatterns,
     "save.*|no_save.*|load.*|no_load.*|.*ckpt.*|use_checkpoint.*|exit_on_missing.*|async_save|.*replication.*|"
     "non_persistent.*|.*path|.*(_dir|_prefix)|split|data.*|dataloader.*|mock_data|mmap.*|num_workers|"
     "num_dataset.*|reset_.*|eod_mask.*|create_attention_mask.*|.*cache.*|object_storage.*|mid_level.*|s3_.*|"
     "sft.*|fim_.*|goldfish.*|renormalize.*|per_split.*|defer_npy.*|sequences_per.*",
     no_effect, "files and data"},
    {kPatterns,
     "(.*_)?(log|logs|logger|logging)(_.*)?|tensorboard.*|wandb.*|timing.*|barrier.*|app_tag.*|adlr_.*|.*profile.*|"
     "record_memory.*|memory_.*|"
     "straggler.*|.*heartbeat.*|run_workload.*|config_logger.*|inprocess.*|enable_ft.*|ft_.*|yaml_cfg|"
     "result_rejected.*|nvtx.*|use_pytorch_profiler|mfu.*",
     no_effect, "reports"},
    {kPatterns,
     "(b|f)p(4|8|16|32)(_.*)?|.*_(in|to)_(b|f)(p|loat)?(16|32)|.*bf16|(initial|min)_loss_scale|params_dtype|"
     "apply_query_key_layer_scaling|.*fusion.*|use_flash.*|attention_backend|transformer_impl|no_persist.*|"
     "recompute.*|checkpoint_activations.*|checkpoint_num_layers|distribute_saved.*|deterministic.*|manual_gc.*|"
     ".*cuda_?graph.*|empty_unused.*|.*offload.*|.*rng_tracker.*|symmetric_.*|flash_decode|use_te.*|te_.*|"
     "disable_symmetric.*|disable_bf16.*|disable_jit.*|disable_mamba.*|batch_invariant.*|cross_entropy.*|"
     "fine_grained.*|use_transformer_engine.*|use_legacy_models|use_mcore_models|deprecated_.*|legacy_.*|"
     "use_kitchen.*|kitchen.*|quant.*|first_last_layers.*|num_layers_at_.*|fuse_.*|clone_scatter.*|"
     "variable_seq.*|mlp_chunks.*|embedding_weights_in_fp32",
     no_effect, "precision, kernels and memory"},
    {kPatterns,
     "moe.*|expert.*|mamba.*|q_lora.*|kv_lora.*|qk_head_dim|qk_pos_emb.*|v_head_dim|rotary_scaling_factor|mscale.*|"
     "beta_(fast|slow)|original_max_position.*|yarn_.*|mrope.*|relative_attention.*|window_attn_skip_freq|"
     "bert.*|biencoder.*|ict_.*|retro_.*|retriever_.*|indexer_.*|dsa_.*|csa_.*|vision.*|dino_.*|swin_.*|img_.*|"
     "patch_dim|num_channels|num_classes|classes_fraction|mask_.*|short_seq_prob|query_in_block.*|titles_.*|"
     "use_one_sent.*|topk|mtp_use_.*|mtp_hybrid.*|mup_.*|linear_(attention|key|value|num|conv).*|gdn_.*|num_residual_"
     "streams|inference.*|"
     "max_tokens_to_oom|output_bert.*|rl_.*|grpo.*|perform_rl.*|langrl.*|export_.*|model_type|group_query.*|"
     "heterogeneous.*|hybrid_.*|sample_rate|head_lr_mult|qk_clip.*|cp_comm_type",
     no_effect, "other kinds of models, and using a model"},
};

}  // namespace

std::span<const KeyRow> arguments() { return kArguments; }

}  // namespace drivetrain::megatron
