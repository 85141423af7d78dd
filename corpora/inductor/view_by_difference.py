# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: x = normal; y = normal; z = normal
def program(x: Float32[Tensor, "u0=3 4"], y: Float32[Tensor, "u1=5"], z: Float32[Tensor, "u2=2"]):
    n = y.size(0) - z.size(0)
    return x.view(n, -1)
