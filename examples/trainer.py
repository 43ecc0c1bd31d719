"""A training as a class, kept whole: metrics, log, code, checkpoints (lux.Trainer, lux.Callback)."""

import torch.nn as nn

from luxmeter import Callback, DataLoader, Meter, Params, Trainer


class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(28 * 28, 10)

    def forward(self, x):
        return self.fc(x.view(x.shape[0], -1))


class MyTrainer(Trainer):
    def initial_trainer(self, params: Params):  # models, optimizers, data: found and saved, listed by nobody
        from torch.optim import SGD

        from luxmeter.train import FakeData, transforms  # or those of torchvision

        self.model = MyModel()
        self.optim = SGD(self.model.parameters(), lr=params.lr)
        dataset = FakeData(image_size=(28, 28), transform=transforms.ToTensor())
        loader = DataLoader(dataset, shuffle=True, batch_size=32, drop_last=True)
        self.regist_databundler(train=loader, eval=lambda: DataLoader(dataset, batch_size=100))
        self.cross = nn.CrossEntropyLoss()

    def train_batch(self, eidx, idx, global_step, batch_data, params, device):
        meter, (xs, ys) = Meter(), batch_data
        meter.loss = self.cross(self.model(xs), ys)
        meter.loss.backward()  # without these three lines they are made for you
        self.optim.step()
        self.optim.zero_grad()
        return meter

    def eval_batch(self, eidx, idx, global_step, batch_data, params, device):
        xs, ys = batch_data
        return {"acc": (self.model(xs).argmax(1) == ys).float().mean()}


class StopWhenGood(Callback):
    def after_eval(self, trainer, meter):
        if meter.acc.mean > 0.95:
            trainer.stop_train()


params = Params()
params.lr = 0.01
params.build_exp_name("mytrainer", "lr")

trainer = MyTrainer(params)
trainer.initial_exp("./experiment")
StopWhenGood().hook(trainer)
print(trainer.callbacks)
trainer.train()

assert trainer.run.name == "mytrainer_lr=0.01" and trainer.meters["eval"].acc.mean > 0.95
assert 2 <= trainer.position.eidx <= params.epoch and len(trainer.saver.find_checkpoints()) >= 1
