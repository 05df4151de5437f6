"""The config of a run that takes a second: what studies of tests change."""
BASE = {
    "train_steps": 4, "threads": 1, "train_batch_size": 4, "checkpoint_policy": False, "save_final": False,
    "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 64,
                                        "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
