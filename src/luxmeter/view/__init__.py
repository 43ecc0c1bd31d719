"""How it is shown: commands, pages, texts, the notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.view.cli import main as main
    from luxmeter.view.notebook import load_ipython_extension as load_ipython_extension
    from luxmeter.view.pages.bench import benchmark_picture as benchmark_picture
    from luxmeter.view.pages.check import check_page as check_page
    from luxmeter.view.pages.model import model_page as model_page
    from luxmeter.view.pages.plots import parallel as parallel
    from luxmeter.view.pages.plots import plot as plot
    from luxmeter.view.pages.plots import plot_tensorboard as plot_tensorboard
    from luxmeter.view.pages.trace import trace_page as trace_page
    from luxmeter.view.text.model import model_report as model_report
    from luxmeter.view.text.model import model_text as model_text

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "main": "cli",
        "load_ipython_extension": "notebook",
        "benchmark_picture": "pages.bench",
        "check_page": "pages.check",
        "model_page": "pages.model",
        "parallel": "pages.plots",
        "plot": "pages.plots",
        "plot_tensorboard": "pages.plots",
        "trace_page": "pages.trace",
        "model_report": "text.model",
        "model_text": "text.model",
    },
)
