# ddefuzz program v1
# inputs: q = normal; k = normal; v = normal
def program(q: Float32[Tensor, "4 u0=128 32"], k: Float32[Tensor, "4 u0=128 32"], v: Float32[Tensor, "4 u0=128 32"]):
    scores = torch.matmul(q, torch.transpose(k, 1, 2)) * 0.25
    return torch.matmul(torch.softmax(scores, 2), v)
