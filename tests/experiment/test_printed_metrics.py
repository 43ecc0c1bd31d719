"""Metrics read in printed lines: the styles that training programs print in, and what must never become a series."""

from __future__ import annotations

import pytest

from luxmeter.experiment.capture.printed_metrics import PrintedMetrics

Found = list[tuple[str, float, int]]

# Lines as these programs print them -> what is read of each.
STYLES: dict[str, list[tuple[str, Found]]] = {
    "plain": [
        ("loss 2.09 acc 0.156", [("loss", 2.09, 0), ("acc", 0.156, 0)]),
        ("loss 1.5 acc 0.3", [("loss", 1.5, 1), ("acc", 0.3, 1)]),
    ],
    "tensors": [
        ("loss: tensor(0.51, grad_fn=<NllLossBackward0>)", [("loss", 0.51, 0)]),
        ("loss tensor(0.4)", [("loss", 0.4, 1)]),
    ],
    "wide": [
        ("epoch：1，loss：0.5（acc＝0.75）", [("loss", 0.5, 1), ("acc", 0.75, 1)]),
    ],
    "eq": [
        ("step=10 loss=0.51 lr=1e-3", [("loss", 0.51, 10), ("lr", 0.001, 10)]),
        ("step=20 loss=0.41 lr=1e-3", [("loss", 0.41, 20), ("lr", 0.001, 20)]),
    ],
    "mnist": [
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.297471", [("loss", 2.297471, 60640)]),
        ("Train Epoch: 1 [1280/60000 (2%)]\tLoss: 2.1", [("loss", 2.1, 61280)]),
        ("", []),
        (
            "Test set: Average loss: 0.0523, Accuracy: 9838/10000 (98%)",
            [("test_average_loss", 0.0523, 1), ("test_accuracy", 0.9838, 1)],
        ),
    ],
    "imagenet": [
        (
            "Epoch: [0][  10/5005]\tTime  0.5 ( 1.2)\tData  0.1 ( 0.2)\tLoss 6.9512e+00 (6.9876e+00)\tAcc@1   0.00 (  0.11)\tAcc@5   0.39 (  0.53)",
            [("loss", 6.9512, 10), ("acc@1", 0.0, 10), ("acc@5", 0.39, 10)],
        ),
        (" * Acc@1 12.3 Acc@5 30.1", []),
    ],
    "tutorial": [
        ("Epoch 1", []),
        ("-------", []),
        ("loss: 2.303494  [   64/60000]", [("loss", 2.303494, 60064)]),
        ("loss: 2.294637  [ 6464/60000]", [("loss", 2.294637, 66464)]),
        ("Test Error: ", []),
        (" Accuracy: 45.2%, Avg loss: 2.156", [("accuracy", 45.2, 1), ("avg_loss", 2.156, 1)]),
    ],
    "tqdm": [
        (" 50%|█████     | 5/10 [00:01<00:01,  4.51it/s, loss=0.5]", [("loss", 0.5, 5)]),
        (" 60%|██████    | 6/10 [00:01<00:01,  4.51it/s, loss=0.4]", [("loss", 0.4, 6)]),
        (" 60%|██████    | 6/10 [00:01<00:01,  4.51it/s, loss=0.4]", []),
    ],
    "lightning": [
        (
            "Epoch 0:  50%|█████     | 5/10 [00:00<00:00, 120.01it/s, v_num=3, train_loss=0.512]",
            [("train_loss", 0.512, 5)],
        ),
        (
            "Epoch 1:  50%|█████     | 5/10 [00:00<00:00, 120.01it/s, v_num=3, train_loss=0.4]",
            [("train_loss", 0.4, 15)],
        ),
    ],
    "lightning_table": [
        ("┃        Test metric        ┃       DataLoader 0        ┃", []),
        ("│         test_acc          │    0.8700000047683716     │", [("test_acc", 0.8700000047683716, 0)]),
        ("│         test_loss         │     0.412          │", [("test_loss", 0.412, 0)]),
    ],
    "hf": [
        (
            "{'loss': 2.3, 'grad_norm': 1.23, 'learning_rate': 5e-05, 'epoch': 0.5}",
            [("loss", 2.3, 0), ("grad_norm", 1.23, 0), ("learning_rate", 5e-05, 0)],
        ),
        (
            "{'eval_loss': 0.5, 'eval_accuracy': 0.9, 'eval_runtime': 1.2, 'epoch': 1.0}",
            [("eval_loss", 0.5, 1), ("eval_accuracy", 0.9, 1), ("eval_runtime", 1.2, 1)],
        ),
        (
            "{'loss': '1.2', 'learning_rate': '4e-05', 'epoch': '1.5'}",
            [("loss", 1.2, 1), ("learning_rate", 4e-05, 1)],
        ),
    ],
    "keras": [
        ("Epoch 1/3", []),
        (
            "100/100 [==============================] - 1s 5ms/step - loss: 0.5123 - accuracy: 0.81 - val_loss: 0.4 - val_accuracy: 0.85",
            [("loss", 0.5123, 1), ("accuracy", 0.81, 1), ("val_loss", 0.4, 1), ("val_accuracy", 0.85, 1)],
        ),
        ("Epoch 2/3", []),
        (
            "100/100 [==============================] - 1s 5ms/step - loss: 0.4 - accuracy: 0.9 - val_loss: 0.3 - val_accuracy: 0.87",
            [("loss", 0.4, 2), ("accuracy", 0.9, 2), ("val_loss", 0.3, 2), ("val_accuracy", 0.87, 2)],
        ),
    ],
    "keras3": [
        ("Epoch 1/5", []),
        (
            "\x1b[1m  1/782\x1b[0m \x1b[37m━━━━━━━━\x1b[0m \x1b[1m1:12\x1b[0m 93ms/step - accuracy: 0.0938 - loss: 2.3026",
            [("accuracy", 0.0938, 783), ("loss", 2.3026, 783)],
        ),
        (
            "\x1b[1m782/782\x1b[0m \x1b[32m━━━━━━━━\x1b[0m \x1b[1m3s\x1b[0m 3ms/step - accuracy: 0.3521 - loss: 1.77",
            [("accuracy", 0.3521, 784), ("loss", 1.77, 784)],
        ),
    ],
    "jsonl": [
        ('{"step": 10, "loss": 0.5, "tokens": 1024}', [("loss", 0.5, 10), ("tokens", 1024.0, 10)]),
        ('{"step": 20, "loss": 0.4, "tokens": 2048}', [("loss", 0.4, 20), ("tokens", 2048.0, 20)]),
    ],
    "logging": [
        (
            "2026-11-18 20:15:01,123 INFO train.py:45 epoch=3 val_loss=0.512 val_acc=0.91",
            [("val_loss", 0.512, 3), ("val_acc", 0.91, 3)],
        ),
    ],
    "nanogpt": [
        (
            "step 250: train loss 1.9530, val loss 2.0512",
            [("train_loss", 1.953, 250), ("val_loss", 2.0512, 250)],
        ),
        ("iter 260: loss 1.9123, time 120.51ms, mfu 1.21%", [("loss", 1.9123, 260)]),
    ],
    "detectron": [
        (
            "[11/18 20:15:01 d2.utils.events]:  eta: 0:01:00  iter: 19  total_loss: 2.05  loss_cls: 0.7  loss_box_reg: 0.3  time: 0.2  data_time: 0.01  lr: 0.00039  max_mem: 2000M",
            [("total_loss", 2.05, 19), ("loss_cls", 0.7, 19), ("loss_box_reg", 0.3, 19), ("lr", 0.00039, 19)],
        ),
    ],
    "mmengine": [
        (
            "11/18 20:15:01 - mmengine - INFO - Epoch(train)  [1][ 10/100]  lr: 1.0000e-02  eta: 0:01:30  time: 0.5  data_time: 0.01  loss: 2.31  top1_acc: 0.1",
            [("loss", 2.31, 11), ("top1_acc", 0.1, 11), ("lr", 0.01, 11)],
        ),
    ],
    "timm": [
        (
            "Train: 0 [  50/100 ( 50%)]  Loss: 6.95 (6.93)  Time: 0.312s,  205.10/s  (0.330s,  193.94/s)  LR: 1.000e-03  Data: 0.010 (0.012)",
            [("loss", 6.95, 50), ("lr", 0.001, 50)],
        ),
    ],
    "fairseq": [
        (
            "2026-11-18 20:15:01 | INFO | train_inner | epoch 001:    100 / 1000 loss=10.5, nll_loss=9.8, ppl=891.1, wps=1200, lr=1.2e-05, gnorm=2.5",
            [
                ("loss", 10.5, 1100),
                ("nll_loss", 9.8, 1100),
                ("ppl", 891.1, 1100),
                ("lr", 1.2e-05, 1100),
                ("gnorm", 2.5, 1100),
            ],
        ),
    ],
    "megatron": [
        (
            " iteration      100/    1000 | consumed samples:          800 | elapsed time per iteration (ms): 120.5 | learning rate: 1.500E-04 | global batch size:     8 | lm loss: 7.512E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 |",
            [("lm_loss", 7.512, 100), ("learning_rate", 0.00015, 100), ("grad_norm", 1.234, 100)],
        ),
    ],
    "fastai": [
        ("epoch     train_loss  valid_loss  accuracy  time    ", []),
        (
            "0         0.512       0.401       0.872     00:12   ",
            [("train_loss", 0.512, 0), ("valid_loss", 0.401, 0), ("accuracy", 0.872, 0)],
        ),
        (
            "1         0.412       0.301       0.9       00:11   ",
            [("train_loss", 0.412, 1), ("valid_loss", 0.301, 1), ("accuracy", 0.9, 1)],
        ),
    ],
    "xgb": [
        ("[0]\tvalidation_0-logloss:0.61234", [("validation_0-logloss", 0.61234, 0)]),
        ("[1]\tvalidation_0-logloss:0.5", [("validation_0-logloss", 0.5, 1)]),
    ],
    "lgbm": [
        ("[10]\tvalid_0's binary_logloss: 0.51", [("binary_logloss", 0.51, 0)]),
    ],
    "yolo": [
        ("      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size", []),
        (
            "      1/100      2.1G      1.234      3.456      1.111         50        640: 100%|██████████| 10/10 [00:03<00:00]",
            [("box_loss", 1.234, 1), ("cls_loss", 3.456, 1), ("dfl_loss", 1.111, 1)],
        ),
    ],
    "sb3": [
        ("| rollout/           |          |", []),
        ("|    ep_len_mean     | 21.5     |", []),
        ("|    ep_rew_mean     | 20.1     |", [("ep_rew_mean", 20.1, 0)]),
        ("| train/             |          |", []),
        ("|    loss            | 0.0123   |", [("loss", 0.0123, 0)]),
    ],
    "deepspeed": [
        (
            "[2026-11-18 20:15:01,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.001], mom=[[0.9, 0.999]]",
            [],
        ),
        ("steps: 10 loss: 2.3012 iter time (s): 0.312 samples/sec: 25.6", [("loss", 2.3012, 10)]),
    ],
    "csv": [
        ("epoch,train_loss,val_loss", []),
        ("0,0.5,0.4", [("train_loss", 0.5, 0), ("val_loss", 0.4, 0)]),
        ("1,0.4,0.3", [("train_loss", 0.4, 1), ("val_loss", 0.3, 1)]),
    ],
    "accel": [
        ("epoch 0: {'accuracy': 0.7, 'f1': 0.81}", [("accuracy", 0.7, 0), ("f1", 0.81, 0)]),
    ],
    "ignite": [
        (
            "Training Results - Epoch: 1  Avg accuracy: 0.92 Avg loss: 0.28",
            [("avg_accuracy", 0.92, 1), ("avg_loss", 0.28, 1)],
        ),
        (
            "Validation Results - Epoch: 1  Avg accuracy: 0.91 Avg loss: 0.3",
            [("validation_avg_accuracy", 0.91, 1), ("validation_avg_loss", 0.3, 1)],
        ),
    ],
}
NO_SERIES = [
    "2026-11-18 20:15:01 Starting",
    "Loaded /data/loss/0.5/acc=0.3.ckpt",
    "torch 2.13.0 accuracy-lib 1.2.3",
    "--lr=0.1 --loss 0.5",
    "python train.py loss=0.5",
    "Namespace(lr=0.1, loss=0.5, acc=1)",
    "lr: 0.01",
    "learning_rate = 0.001",
    '  File "loss.py", line 23, in f',
    "loss.py:23: UserWarning: x",
    "saved checkpoint epoch=3-val_loss=0.51.ckpt",
    "loss_weight: 0.5",
    "{'lr': 0.1, 'batch_size': 32}",
    "accuracy 3 times",
    "Error: 2 files missing",
    "precision: 16",
    "loss 12:30:01",
    "loss: 2026-11-18",
    "acc 192.168.0.1",
    "Listening on http://localhost:8080/loss=1",
    "Epoch 3/10",
    "val_loss improved from 0.50000 to 0.40000, saving model to m.h5",
    "label_smoothing=0.1 loss_scale=128.0",
    "CUDA error: 2",
    "total params: 1,200,000",
    "score: 3",
    "Downloading accuracy.tar 1.2MB",
    "exit code 1 error: 1",
    "100%|██████████| 10/10 [00:03<00:00, 3.1it/s]",
    "loss functions: 3",
    "mIoU threshold 0.5",
    "INFO:loss:0.5.1",
    "checkpoints/model_loss: 3",
    "Adjusting learning rate of group 0 to 1.0000e-03.",
    "recall@10: k=5",
    "F1 driver 2024",
]


@pytest.mark.parametrize("style", STYLES)
def test_a_style_is_read(style: str) -> None:
    reader = PrintedMetrics()
    assert [(line, reader.read(line)) for line, _ in STYLES[style]] == STYLES[style]


@pytest.mark.parametrize("line", NO_SERIES)
def test_what_is_no_metric_is_no_series(line: str) -> None:
    assert PrintedMetrics().read(line) == []


def test_there_are_twenty_styles_and_each_gives_something() -> None:
    assert len(STYLES) >= 20
    assert all(any(found for _, found in lines) for lines in STYLES.values())


def test_steps_of_a_series_only_grow() -> None:
    """A bar an epoch begins anew: the series goes on."""
    reader = PrintedMetrics()
    steps = [
        step
        for epoch in range(3)
        for done in (5, 10)
        for _, _, step in reader.read(f" {done}/10 [00:01<00:01, loss={1 / (epoch + done):.4f}]")
    ]
    assert steps == sorted(set(steps)) and len(steps) == 6


def steps_of_bars(bars: list[tuple[int, str]]) -> list[int]:
    """The steps of bars that are read below lines which tell the epoch."""
    reader = PrintedMetrics()
    steps = []
    for epoch, bar in bars:
        reader.read(f"epoch {epoch} begins")
        steps += [step for _, _, step in reader.read(f" {bar} [00:01<00:02, acc={value_at(bar)}]")]
    return steps


def value_at(bar: str) -> float:
    return float(bar.partition("/")[0]) / 100


def test_a_bar_of_epochs_is_told_from_a_bar_within_them() -> None:
    assert steps_of_bars([(0, "1/4"), (1, "2/4"), (2, "3/4"), (3, "4/4")]) == [1, 2, 3, 4]
    assert steps_of_bars([(0, "1/4"), (0, "3/4"), (1, "1/4"), (1, "3/4")]) == [1, 3, 5, 7]
    assert steps_of_bars([(1, "2/4"), (2, "2/4"), (3, "2/4")]) == [6, 10, 14]


def test_a_line_counts_in_the_epoch_in_which_it_began() -> None:
    reader = PrintedMetrics()
    reader.read("epoch 5 begins")
    assert reader.epoch == 5
    assert reader.read(" 1/3 [acc=0.5]", epoch=2) == [("acc", 0.5, 7)]
    assert reader.read("val_loss 0.25") == [("val_loss", 0.25, 5)]


def test_a_long_line_and_odd_bytes_are_no_trouble() -> None:
    reader = PrintedMetrics()
    for line in (
        "loss " * 10_000,
        "{" * 5000 + "1" + "}" * 5000,
        "loss: \x00\x1b[31m0.5\x1b[0m",
        "loss=1e999",
        "loss: nan",
    ):
        reader.read(line)
    assert reader.read("loss: \x1b[31m0.25\x1b[0m")[0][1] == 0.25
