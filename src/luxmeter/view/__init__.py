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
    from luxmeter.view.pages.model import models_page as models_page
    from luxmeter.view.pages.plots import parallel as parallel
    from luxmeter.view.pages.plots import plot as plot
    from luxmeter.view.pages.plots import plot_tensorboard as plot_tensorboard
    from luxmeter.view.pages.report import report_page as report_page
    from luxmeter.view.pages.report import write_report as write_report
    from luxmeter.view.pages.trace import trace_page as trace_page
    from luxmeter.view.reprs import explanation_html as explanation_html
    from luxmeter.view.reprs import model_html as model_html
    from luxmeter.view.reprs import models_html as models_html
    from luxmeter.view.reprs import operators_html as operators_html
    from luxmeter.view.reprs import run_diff_html as run_diff_html
    from luxmeter.view.reprs import run_html as run_html
    from luxmeter.view.reprs import runs_html as runs_html
    from luxmeter.view.text.model import model_report as model_report
    from luxmeter.view.text.model import model_text as model_text
    from luxmeter.view.watching import control_buttons as control_buttons
    from luxmeter.view.watching import watch as watch

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "main": "cli",
        "load_ipython_extension": "notebook",
        "control_buttons": "watching",
        "watch": "watching",
        "benchmark_picture": "pages.bench",
        "check_page": "pages.check",
        "model_page": "pages.model",
        "models_page": "pages.model",
        "parallel": "pages.plots",
        "plot": "pages.plots",
        "plot_tensorboard": "pages.plots",
        "report_page": "pages.report",
        "write_report": "pages.report",
        "trace_page": "pages.trace",
        "explanation_html": "reprs",
        "model_html": "reprs",
        "models_html": "reprs",
        "operators_html": "reprs",
        "run_diff_html": "reprs",
        "run_html": "reprs",
        "runs_html": "reprs",
        "model_report": "text.model",
        "model_text": "text.model",
    },
)
