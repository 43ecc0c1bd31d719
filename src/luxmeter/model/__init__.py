"""What a model costs. Every part of it computes with torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door
from luxmeter.torch_extra import require_torch

if TYPE_CHECKING:
    from luxmeter.model import plainnet as plainnet
    from luxmeter.model.analysis import analyze as analyze
    from luxmeter.model.analysis import analyze_model as analyze_model
    from luxmeter.model.budget import CostBudget as CostBudget
    from luxmeter.model.budget import OverBudgetError as OverBudgetError
    from luxmeter.model.compare import ModelComparison as ModelComparison
    from luxmeter.model.compare import compare_models as compare_models
    from luxmeter.model.inputs import parse_size as parse_size
    from luxmeter.model.latency import Share as Share
    from luxmeter.model.latency import shares as shares
    from luxmeter.model.plainnet import PlainNet as PlainNet
    from luxmeter.model.plainnet import SearchResult as SearchResult
    from luxmeter.model.plainnet import load_search as load_search
    from luxmeter.model.records import ModelCost as ModelCost
    from luxmeter.model.records import ModuleCost as ModuleCost
    from luxmeter.model.records import load_cost as load_cost
    from luxmeter.model.records import written as written
    from luxmeter.model.scores import grad_norm_score as grad_norm_score
    from luxmeter.model.scores import naswot_score as naswot_score
    from luxmeter.model.scores import score_named as score_named
    from luxmeter.model.scores import synflow_score as synflow_score
    from luxmeter.model.zen import TITLES as TITLES
    from luxmeter.model.zen import ZenScore as ZenScore
    from luxmeter.model.zen import load_score as load_score
    from luxmeter.model.zen import put_score as put_score
    from luxmeter.model.zen import read_score as read_score
    from luxmeter.model.zen import zen_score as zen_score

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "analyze": "analysis",
        "analyze_model": "analysis",
        "CostBudget": "budget",
        "OverBudgetError": "budget",
        "ModelComparison": "compare",
        "compare_models": "compare",
        "parse_size": "inputs",
        "Share": "latency",
        "shares": "latency",
        "PlainNet": "plainnet",
        "SearchResult": "plainnet",
        "load_search": "plainnet",
        "plainnet": "plainnet",
        "ModelCost": "records",
        "ModuleCost": "records",
        "load_cost": "records",
        "written": "records",
        "grad_norm_score": "scores",
        "naswot_score": "scores",
        "score_named": "scores",
        "TITLES": "zen",
        "synflow_score": "scores",
        "ZenScore": "zen",
        "load_score": "zen",
        "put_score": "zen",
        "read_score": "zen",
        "zen_score": "zen",
    },
)

require_torch("luxmeter.model")
