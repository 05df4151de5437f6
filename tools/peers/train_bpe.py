"""Trains a byte-level BPE with Hugging Face's `tokenizers` and writes its tokenizer.json.

    python3 train_bpe.py FOLDER SIZE OUTPUT

Takes the first 95 % of the folder's files, in the order in which `drivetrain data prepare` takes them: with the split "95,5,0" the rest is
what a run is validated on. configs/bpe/tokenizer.json was made from the headers that ship with LibTorch 2.11, SIZE 2048.
"""
import os
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


def main(folder, size, output):
    files = sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=int(size),
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train(files[: len(files) * 95 // 100], trainer)
    tokenizer.save(output, pretty=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
