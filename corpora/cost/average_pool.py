# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "4 8 u0=128 64"]):
    return torch.nn.functional.avg_pool2d(x, [3, 3], [2, 2])
