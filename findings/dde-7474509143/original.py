# ddefuzz program v1
# inputs: x0 = normal, grad
def program(x0: Float32[Tensor, "0 u0=3"]):
    t0 = torch.svd(x0, some=True)
    total = t0[0].sum()
    grads = torch.autograd.grad(total, [x0], allow_unused=True)
    return grads
