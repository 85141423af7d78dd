"""Models for the study: `ddefuzz check ddefuzz.checking.models:gpt2`. And what torch says of a model without ddefuzz.

They are the examples of torch's ExportDB, and families of transformers with random weights and tiny sizes. Nothing is
downloaded. What is unbacked in the families: the sequence length; of models with a cache, its length too; the batch
size of models of images.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple

import torch

from ddefuzz.checking.study import Plain
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.protocol import Subject
from ddefuzz.execute.stages import as_exported
from ddefuzz.execute.subject import error_line, prepare
from ddefuzz.instrument import torch_api


class Family(NamedTuple):
    """The model's class, what its configuration has to be for a tiny model, and its inputs.

    `cached` are token ids and the keys and values of earlier ones. The class of the configuration is named like the
    model's, unless `config` names another.
    """

    model: str
    settings: Mapping[str, Any]
    inputs: Literal["ids", "cached", "image"] = "ids"
    config: str = ""


def _small(**settings: Any) -> dict[str, Any]:
    return settings


def _encoder(**more: Any) -> dict[str, Any]:
    layers = _small(num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=64)
    return _small(vocab_size=64, hidden_size=16) | layers | more


def _decoder(**more: Any) -> dict[str, Any]:
    return _encoder(num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, **more)


def _transformer_of_images(**more: Any) -> dict[str, Any]:
    return _encoder(image_size=16, patch_size=4, **more)


_GPT2 = _small(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=64)
_GPT_NEO = _small(vocab_size=64, hidden_size=16, num_layers=2, num_heads=2, max_position_embeddings=64)
_OPT = _small(vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64)
_CONVOLUTIONS = _small(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])

FAMILIES: dict[str, Family] = {
    "albert": Family("AlbertModel", _encoder(embedding_size=16)),
    "beit": Family("BeitModel", _transformer_of_images(out_indices=[1]), "image"),
    "bert": Family("BertModel", _encoder()),
    "bloom": Family("BloomModel", _small(vocab_size=64, hidden_size=16, n_layer=2, n_head=2)),
    "cohere": Family("CohereModel", _decoder()),
    "convnext": Family(
        "ConvNextModel", _small(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=2), "image"
    ),
    "deberta_v2": Family("DebertaV2Model", _encoder()),
    "deit": Family("DeiTModel", _transformer_of_images(), "image"),
    "distilbert": Family("DistilBertModel", _small(vocab_size=64, dim=16, n_layers=2, n_heads=2, hidden_dim=32)),
    "electra": Family("ElectraModel", _encoder(embedding_size=16)),
    "falcon": Family("FalconModel", _encoder()),
    "gemma": Family("GemmaModel", _decoder(head_dim=8)),
    "gemma2": Family("Gemma2Model", _decoder(head_dim=8)),
    "gpt2": Family("GPT2Model", _GPT2),
    "gpt_neo": Family("GPTNeoModel", {**_GPT_NEO, "attention_types": [[["global", "local"], 1]]}),
    "gpt_neox": Family("GPTNeoXModel", _encoder()),
    "gptj": Family("GPTJModel", {**_GPT2, "rotary_dim": 4}),
    "granite": Family("GraniteModel", _decoder()),
    "llama": Family("LlamaModel", _decoder()),
    "llama-cached": Family("LlamaModel", _decoder(), "cached"),
    "mistral": Family("MistralModel", _decoder()),
    "mixtral": Family("MixtralModel", _decoder(num_local_experts=2, num_experts_per_tok=1)),
    "mobilenet_v2": Family("MobileNetV2Model", _small(depth_multiplier=0.25), "image"),
    "mpnet": Family("MPNetModel", _encoder()),
    "olmo": Family("OlmoModel", _decoder()),
    "opt": Family("OPTModel", {**_OPT, "ffn_dim": 32, "word_embed_proj_dim": 16}),
    "phi": Family("PhiModel", _decoder()),
    "phi3": Family("Phi3Model", _decoder()),
    "qwen2": Family("Qwen2Model", _decoder()),
    "qwen2-cached": Family("Qwen2Model", _decoder(), "cached"),
    "qwen3": Family("Qwen3Model", _decoder(head_dim=8)),
    "regnet": Family("RegNetModel", {**_CONVOLUTIONS, "groups_width": 8}, "image"),
    "resnet": Family("ResNetModel", {**_CONVOLUTIONS, "layer_type": "basic"}, "image"),
    "roberta": Family("RobertaModel", _encoder()),
    "stablelm": Family("StableLmModel", _decoder()),
    "swin": Family(
        "SwinModel",
        _small(image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4),
        "image",
    ),
    "t5-encoder": Family(
        "T5EncoderModel",
        _small(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2),
        config="T5Config",
    ),
    "vit": Family("ViTModel", _transformer_of_images(), "image"),
}


def names(group: str) -> tuple[str, ...]:
    """The names of the models of a group; of the families, those that the installed transformers has."""
    if group == "ExportDB":
        return tuple(torch_api.bound(torch_api.EXPORTDB)())
    try:
        library = import_module("transformers")
    except ImportError:
        return ()
    return tuple(name for name, family in FAMILIES.items() if hasattr(library, family.model))


def __getattr__(name: str) -> Callable[[], dict[str, Any]]:
    """A function that makes the model of this name with its arguments."""
    if name in FAMILIES:
        return lambda: _of_family(FAMILIES[name])
    examples = torch_api.bound(torch_api.EXPORTDB)() if not name.startswith("_") else {}
    if name in examples:
        return lambda: _of_exportdb(examples[name])
    raise AttributeError(name)


def _of_exportdb(example: Any) -> dict[str, Any]:
    return {
        "callable": copy.deepcopy(example.model),
        "args": copy.deepcopy(tuple(example.example_args)),
        "kwargs": copy.deepcopy(dict(example.example_kwargs)),
        "dynamic_shapes": example.dynamic_shapes,
    }


def _of_family(family: Family) -> dict[str, Any]:
    library = import_module("transformers")
    more = {} if family.inputs == "image" else {"use_cache": False}
    config = getattr(library, family.config or f"{family.model.removesuffix('Model')}Config")(**family.settings, **more)
    model = getattr(library, family.model)(config).eval()
    if family.inputs == "image":
        return {"callable": model, "args": (torch.randn(3, 3, 16, 16),), "unbacked": {0: [0]}}
    ids = torch.arange(10).view(2, 5) + 3
    if family.inputs == "ids":
        return {"callable": model, "args": (ids,), "unbacked": {0: [1]}}
    return {
        "callable": model,
        "args": (),
        "kwargs": {"input_ids": ids, "past_key_values": _cache(library, config)},
        "unbacked": {"input_ids": {1: "length"}, "past_key_values": {2: "cached"}},
    }


def _cache(library: Any, config: Any) -> Any:
    """Keys and values of 6 earlier tokens in each layer. The class is registered as torch.export needs it."""
    import_module("transformers.integrations.executorch").register_dynamic_cache_export_support()
    cache = library.DynamicCache(config=config)
    heads, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    for layer in range(config.num_hidden_layers):
        cache.update(torch.randn(2, heads, 6, width), torch.randn(2, heads, 6, width), layer)
    return cache


def plain(subject: Subject, function: Literal["export", "draft_export"]) -> Plain:
    """What `torch.export.export` or `torch.export.draft_export` does, non-strict."""
    capture = getattr(torch.export, function)
    exported = as_exported(prepare(subject))
    with captured_output(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.process_time()
        try:
            program = capture(
                exported.module, exported.args, exported.kwargs, dynamic_shapes=exported.dynamic_shapes, strict=False
            )
        except Exception as error:  # noqa: BLE001 what torch raises is the result
            return Plain(error_line(error)[:200], time.process_time() - started)
        seconds = time.process_time() - started
    report = getattr(program, torch_api.DRAFT_REPORT, None)
    return Plain("", seconds, len(getattr(report, "failures", ())))
