"""Muon (Jordan et al. 2024): momentum whose matrices are made orthogonal before they are applied."""

import torch


def orthogonal(gradient):
    """The nearest matrix with all singular values near 1, by five Newton-Schulz steps."""
    x = gradient
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        # 3.4445 x + (-4.7750 a + 2.0315 a a) x, each product and sum in one pass.
        x = torch.addmm(x, torch.addmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, matrices, lr, momentum=0.95, weight_decay=0.05):
        super().__init__(matrices, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for matrix in group["params"]:
                state = self.state[matrix]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(matrix)
                average = state["momentum"].lerp_(matrix.grad, 1 - momentum)
                update = orthogonal(matrix.grad.lerp(average, momentum))
                matrix.mul_(1 - lr * group["weight_decay"])
                matrix.add_(update, alpha=-lr * max(1, matrix.shape[0] / matrix.shape[1]) ** 0.5)
