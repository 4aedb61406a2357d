"""Encodes texts with the C++ engine of CTranslate2, which shares no code with this project.

Reads a JSON object from standard input: `model`, a directory with config.json, tokenizer.json and
model.safetensors of BERT or XLM-RoBERTa; `max_tokens`; and `texts`. Prints a JSON array with the
vector of each text: the mean over its tokens, scaled to length 1.
"""

import json
import os
import sys
import tempfile

import ctranslate2
import numpy
from ctranslate2.converters import utils
from ctranslate2.specs import common_spec, transformer_spec
from tokenizers import Tokenizer


def read_tensors(path):
    """Returns the 32-bit tensors of a safetensors file by name, without their common prefix."""
    with open(path, "rb") as file:
        content = file.read()
    size = int.from_bytes(content[:8], "little")
    tensors = {}
    for name, place in json.loads(content[8 : 8 + size]).items():
        if name != "__metadata__" and place["dtype"] == "F32":
            start, end = (8 + size + offset for offset in place["data_offsets"])
            values = numpy.frombuffer(content[start:end], "<f4")
            tensors[name] = values.reshape(place["shape"])
    words = "embeddings.word_embeddings.weight"
    prefix = next(name.removesuffix(words) for name in tensors if name.endswith(words))
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def specification(tensors, config):
    """Returns the model as the engine wants it."""

    def linear(spec, name):
        spec.weight = tensors[name + ".weight"]
        spec.bias = tensors[name + ".bias"]
        return spec

    def norm(spec, name):
        spec.gamma = tensors[name + ".weight"]
        spec.beta = tensors[name + ".bias"]

    encoder = transformer_spec.TransformerEncoderSpec(
        config["num_hidden_layers"],
        config["num_attention_heads"],
        pre_norm=False,
        activation=common_spec.Activation.GELU,
        num_source_embeddings=2,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD,
        layernorm_embedding=True,
    )
    encoder.scale_embeddings = False
    # XLM-RoBERTa has the position of its first token after that of padding.
    first = config["pad_token_id"] + 1 if config["model_type"] == "xlm-roberta" else 0
    encoder.embeddings[0].weight = tensors["embeddings.word_embeddings.weight"]
    encoder.embeddings[1].weight = tensors["embeddings.token_type_embeddings.weight"]
    encoder.position_encodings.encodings = tensors["embeddings.position_embeddings.weight"][first:]
    norm(encoder.layernorm_embedding, "embeddings.LayerNorm")
    for index, layer in enumerate(encoder.layer):
        name = f"encoder.layer.{index}."
        parts = [
            linear(common_spec.LinearSpec(), name + "attention.self." + part)
            for part in ("query", "key", "value")
        ]
        utils.fuse_linear(layer.self_attention.linear[0], parts)
        linear(layer.self_attention.linear[1], name + "attention.output.dense")
        norm(layer.self_attention.layer_norm, name + "attention.output.LayerNorm")
        linear(layer.ffn.linear_0, name + "intermediate.dense")
        linear(layer.ffn.linear_1, name + "output.dense")
        norm(layer.ffn.layer_norm, name + "output.LayerNorm")

    model = transformer_spec.TransformerEncoderModelSpec(encoder)
    # The texts come as numbers of tokens, so that the names of tokens do not matter.
    model.register_vocabulary([f"{number}" for number in range(config["vocab_size"])])
    model.config.unk_token = "0"
    model.config.layer_norm_epsilon = config["layer_norm_eps"]
    model.validate()
    return model


def main():
    asked = json.load(sys.stdin)
    directory = asked["model"]
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    tensors = read_tensors(os.path.join(directory, "model.safetensors"))
    tokenizer = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(asked["max_tokens"])
    vectors = []
    with tempfile.TemporaryDirectory() as converted:
        specification(tensors, config).save(converted)
        engine = ctranslate2.Encoder(converted, compute_type="float32", intra_threads=1)
        for text in asked["texts"]:
            output = engine.forward_batch([tokenizer.encode(text).ids])
            hidden = numpy.array(output.last_hidden_state)[0].astype(numpy.float64)
            mean = hidden.mean(axis=0)
            vectors.append((mean / numpy.linalg.norm(mean)).tolist())
    json.dump(vectors, sys.stdout)


main()
