# ddefuzz program v1
# inputs: x = normal; w = normal; v = normal
def program(x: Float32[Tensor, "u0=2048 64"], w: Float32[Tensor, "256 64"], v: Float32[Tensor, "64 256"]):
    h = torch.nn.functional.gelu(torch.nn.functional.linear(x, w))
    return torch.nn.functional.linear(h, v)
