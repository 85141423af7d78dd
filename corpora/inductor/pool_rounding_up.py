# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: x = normal
def program(x: Float32[Tensor, "1 2 u0=6 6"]):
    n = x.size(2)
    torch._check((n - 1) % 2 != 0)
    torch._check((n - 1) // 2 * 2 < n)
    return torch.nn.functional.max_pool2d(x, 2, 2, ceil_mode=True)
