# ddefuzz program v1
# expect: inductor/explicit internal-error at torch/_inductor/sizevars.py:evaluate_min
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0 4"], y: Float32[Tensor, "u1=5"]):
    a = x[:y.size(0)]
    return torch.diagonal(a) + 1
