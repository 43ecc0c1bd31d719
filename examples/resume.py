"""Stop a training in the middle of an epoch and go on, bit by bit the same (Saver.save_state, lux.DataLoader)."""

import random
import tempfile

import torch

import luxmeter as lux


class Noisy(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), index + random.random())  # an augmentation


def train(saver: lux.Saver, *, stop_at: int | None = None) -> list[float]:
    lux.random.fix_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optim = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = lux.DataLoader(Noisy(), batch_size=2, shuffle=True, num_workers=2)
    parts = {"model": model, "optim": optim, "loader": loader}

    where = saver.resume(**parts)  # false, and step 0, when there is nothing yet
    step, losses = where.step, []
    for _ in range(loader.epoch, 3):
        for batch in loader:
            loss = model(batch).square().mean()
            optim.zero_grad()
            loss.backward()
            optim.step()
            losses.append(loss.item())
            step += 1
            saver.save_state(step, info={"loss": loss.item()}, **parts)
            if step == stop_at:
                return losses
    return losses


if __name__ == "__main__":
    folder = tempfile.TemporaryDirectory()
    whole = train(lux.Saver(f"{folder.name}/whole"))
    saver = lux.Saver(f"{folder.name}/stopped")
    first = train(saver, stop_at=9)  # in the middle of the second epoch
    rest = train(saver)
    print(f"{len(first)} steps, then {len(rest)}: the same as {len(whole)} without a stop")
    assert first + rest == whole
    saver.close()  # waits for the last write
