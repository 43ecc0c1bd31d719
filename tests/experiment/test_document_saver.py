"""The snippets of the document about seeds and saving, with only their imports changed."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest


def test_random_seed_snippet(capsys: pytest.CaptureFixture[str]) -> None:
    import torch
    import torch.nn as nn
    from torch.optim import SGD

    from luxmeter import random

    stt = random.get_state()
    for i in range(2):
        data = torch.rand(5, 2)
        y = torch.tensor([0, 0, 0, 0, 0])
        model = nn.Linear(2, 2)

        sgd = SGD(model.parameters(), lr=0.01)
        logits = model(data)
        loss = nn.CrossEntropyLoss()(logits, y)
        loss.backward()
        sgd.step()
        sgd.zero_grad()

        print(list(model.parameters()))
        random.set_state(stt)

    printed = capsys.readouterr().out
    assert printed.startswith("[Parameter containing:")
    half = len(printed) // 2
    assert printed[:half] == printed[half:]  # 可以对比一下两次输出的参数，都是完全相同的


def test_saver_snippet(capsys: pytest.CaptureFixture[str]) -> None:
    from luxmeter import Saver

    saver = Saver("./sav")
    for i in range(10):
        saver.save_keypoint(i, {"a": i}, {"b": i})
        print(saver.find_keypoints())
    for i in range(10):
        saver.save_checkpoint(i, {"a": i}, {"b": i})
        print(saver.find_checkpoints())
    for i in range(10):
        saver.save_model(i, {"a": i}, {"b": i})
        print(saver.find_models())

    lines = [ast.literal_eval(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(names) for names in lines] == [*range(1, 11), 1, 2, *[3] * 8, *range(1, 11)]
    assert lines[9] == [f"sav/keep.{i:06d}.ckpt" for i in range(10)]
    assert lines[19] == [f"sav/{i:06d}.ckpt" for i in (7, 8, 9)]
    assert lines[29] == [f"sav/model.{i:06d}.pth" for i in range(10)]
    for names in (lines[9], lines[19], lines[29]):
        for name in names:
            assert json.loads(Path(name + ".json").read_text())["info"] == {
                "b": int(Path(name).name.split(".")[-2])
            }
    assert saver.load_keypoint(4) == ({"a": 4}, {"b": 4})
    assert saver.load_latest_checkpoint().checkpoint == {"a": 9}
    assert saver.load_model(0).info == {"b": 0}
