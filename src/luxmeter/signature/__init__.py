"""What a call was given: every argument described, none held; as JSON; of torch; of MindSpore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.signature.call import describe as describe
    from luxmeter.signature.call import plain_tensors as plain_tensors
    from luxmeter.signature.json import signature_from_json as signature_from_json
    from luxmeter.signature.json import to_json as to_json
    from luxmeter.signature.json import value_from_json as value_from_json
    from luxmeter.signature.mindspore import mindspore_dtype_type as mindspore_dtype_type
    from luxmeter.signature.mindspore import mindspore_tensor_type as mindspore_tensor_type
    from luxmeter.signature.modules import is_unmade as is_unmade
    from luxmeter.signature.modules import look_of as look_of
    from luxmeter.signature.modules import module_of as module_of
    from luxmeter.signature.records import DTYPE_SPELLINGS as DTYPE_SPELLINGS
    from luxmeter.signature.records import LONG_DTYPES as LONG_DTYPES
    from luxmeter.signature.records import SHORT_DTYPES as SHORT_DTYPES
    from luxmeter.signature.records import Argument as Argument
    from luxmeter.signature.records import DictOf as DictOf
    from luxmeter.signature.records import Facts as Facts
    from luxmeter.signature.records import ListOf as ListOf
    from luxmeter.signature.records import ModuleSpec as ModuleSpec
    from luxmeter.signature.records import Opaque as Opaque
    from luxmeter.signature.records import Signature as Signature
    from luxmeter.signature.records import SliceOf as SliceOf
    from luxmeter.signature.records import TensorSpec as TensorSpec
    from luxmeter.signature.records import Word as Word
    from luxmeter.signature.records import contiguous_stride as contiguous_stride
    from luxmeter.signature.records import dtype_bytes as dtype_bytes
    from luxmeter.signature.records import dtype_named as dtype_named
    from luxmeter.signature.records import map_tensors as map_tensors
    from luxmeter.signature.records import tensors_in as tensors_in
    from luxmeter.signature.records import text as text
    from luxmeter.signature.torch import Looks as Looks
    from luxmeter.signature.torch import facts_of as facts_of

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "describe": "call",
        "plain_tensors": "call",
        "signature_from_json": "json",
        "to_json": "json",
        "value_from_json": "json",
        "mindspore_dtype_type": "mindspore",
        "mindspore_tensor_type": "mindspore",
        "is_unmade": "modules",
        "look_of": "modules",
        "module_of": "modules",
        "Argument": "records",
        "DTYPE_SPELLINGS": "records",
        "DictOf": "records",
        "Facts": "records",
        "LONG_DTYPES": "records",
        "ListOf": "records",
        "ModuleSpec": "records",
        "Opaque": "records",
        "SHORT_DTYPES": "records",
        "Signature": "records",
        "SliceOf": "records",
        "TensorSpec": "records",
        "Word": "records",
        "contiguous_stride": "records",
        "dtype_bytes": "records",
        "dtype_named": "records",
        "map_tensors": "records",
        "tensors_in": "records",
        "text": "records",
        "Looks": "torch",
        "facts_of": "torch",
    },
)
