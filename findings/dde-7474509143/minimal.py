# ddefuzz program v1
# inputs: x = normal, grad
def program(x: Float32[Tensor, "0 u0"]):
    a = torch.svd(x)
    b = a[0].sum()
    return torch.autograd.grad(b, x)
