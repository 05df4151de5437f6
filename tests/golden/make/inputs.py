"""Everything random: start weights and tokens, drawn by NumPy's default generator from the seeds in the case files."""
import numpy
import torch

VOCABULARY = 256


def rounded(numbers):
    """As every input of the golden data is: float32, exactly."""
    return torch.from_numpy(numpy.asarray(numbers).astype(numpy.float32))


def normal(generator, *shape):
    return generator.standard_normal(shape)


def start_weights(shapes, matrix_scale, last_norm, seed):
    """One tensor per name, drawn in the order of the names. Biases and gains are random too, so that a tensor that is
    swapped, left out or transposed shows in the first loss."""
    generator = numpy.random.default_rng(seed)
    weights = {}
    for name in sorted(shapes):
        drawn = generator.standard_normal(shapes[name])
        if name.endswith(".bias"):
            drawn = 0.1 * drawn
        elif len(shapes[name]) == 1:
            drawn = 1 + 0.1 * drawn
        else:
            drawn = matrix_scale(name, shapes[name]) * drawn
        weights[name] = rounded(drawn) * last_norm.get(name, 1.0)
    return weights


def token_batches(shape, seed):
    """Tokens that a model can learn a little of: in 85 of 100 cases one of the four followers of the token before, else a
    token drawn by Zipf's law. Both ends of the vocabulary occur at the start."""
    generator = numpy.random.default_rng(seed)
    followers = generator.integers(0, VOCABULARY, size=(VOCABULARY, 4))
    by_rank = generator.permutation(VOCABULARY)
    zipf = 1 / numpy.arange(1, VOCABULARY + 1)
    zipf /= zipf.sum()

    def fresh():
        return by_rank[generator.choice(VOCABULARY, p=zipf)]

    rows = numpy.zeros((int(numpy.prod(shape[:-1])), shape[-1]), dtype=numpy.int64)
    for row in rows:
        token = fresh()
        for place in range(len(row)):
            row[place] = token
            is_fresh = generator.random() < 0.15
            token = fresh() if is_fresh else followers[token, generator.choice(4, p=[0.5, 0.25, 0.15, 0.1])]
    rows[0, :3] = [VOCABULARY - 1, 0, VOCABULARY - 1]
    return torch.from_numpy(rows.reshape(shape))
