"""What a model costs. Every part of it computes with torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door
from luxmeter.torch_extra import require_torch

if TYPE_CHECKING:
    from luxmeter.model import plainnet as plainnet
    from luxmeter.model.analysis import analyze as analyze
    from luxmeter.model.analysis import analyze_model as analyze_model
    from luxmeter.model.compare import Comparison as Comparison
    from luxmeter.model.compare import compare_models as compare_models
    from luxmeter.model.export import load_cost as load_cost
    from luxmeter.model.export import written as written
    from luxmeter.model.hotspots import Share as Share
    from luxmeter.model.hotspots import shares as shares
    from luxmeter.model.inputs import parse_size as parse_size
    from luxmeter.model.plainnet import PlainNet as PlainNet
    from luxmeter.model.plainnet import SearchResult as SearchResult
    from luxmeter.model.plainnet import load_search as load_search
    from luxmeter.model.records import ModelCost as ModelCost
    from luxmeter.model.records import ModuleCost as ModuleCost
    from luxmeter.model.scores import score_named as score_named
    from luxmeter.model.zen import TITLES as TITLES
    from luxmeter.model.zen import ZenScore as ZenScore
    from luxmeter.model.zen import load_score as load_score
    from luxmeter.model.zen import put_score as put_score
    from luxmeter.model.zen import zen_score as zen_score

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "analyze": "analysis",
        "analyze_model": "analysis",
        "Comparison": "compare",
        "compare_models": "compare",
        "load_cost": "export",
        "written": "export",
        "Share": "hotspots",
        "shares": "hotspots",
        "parse_size": "inputs",
        "PlainNet": "plainnet",
        "SearchResult": "plainnet",
        "load_search": "plainnet",
        "plainnet": "plainnet",
        "ModelCost": "records",
        "ModuleCost": "records",
        "score_named": "scores",
        "TITLES": "zen",
        "ZenScore": "zen",
        "load_score": "zen",
        "put_score": "zen",
        "zen_score": "zen",
    },
)

require_torch("luxmeter.model")
