"""Detection and vision models in the styles that users report: filters by score, empty-result branches, padding."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def _boxes(n):
    generator = torch.Generator().manual_seed(1)
    corner = torch.rand(n, 2, generator=generator) * 10
    return torch.cat([corner, corner + 1 + torch.rand(n, 2, generator=generator) * 5], dim=1)


class ScoreFilter(nn.Module):
    """Keeps boxes above a score; an empty result is returned early, which only saves work."""

    def __init__(self, threshold=0.5):
        super().__init__()
        self.threshold = threshold

    def forward(self, boxes, scores):
        keep = scores > self.threshold
        boxes, scores = boxes[keep], scores[keep]
        if boxes.numel() == 0:
            return boxes, scores
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        return boxes * area[:, None], scores


ScoreFilter_args = (_boxes(6), torch.tensor([0.9, 0.1, 0.8, 0.7, 0.2, 0.6]))


class TopK(nn.Module):
    """Cuts the detections to the best k where there are more."""

    def forward(self, scores, labels):
        keep = torch.nonzero(scores > 0).squeeze(1)
        if keep.shape[0] > 3:
            keep = keep[:3]
        return scores[keep], labels[keep]


TopK_args = (torch.tensor([1.0, -1.0, 2.0, 3.0, 0.5, -2.0]), torch.arange(6))


class ClassBranch(nn.Module):
    """Adds a correction if any pixel is foreground."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, image):
        mask = image > 0
        out = self.conv(image)
        if mask.any():
            out = out + mask.float()
        return out


ClassBranch_args = (torch.randn(1, 1, 6, 6, generator=torch.Generator().manual_seed(2)),)


class PadToMultiple(nn.Module):
    """Pads a batch of patches to a multiple of 4."""

    def forward(self, patches):
        n = patches.shape[0]
        pad = -n % 4
        if pad:
            patches = F.pad(patches, (0, 0, 0, pad))
        return patches.view(-1, 4, patches.shape[1]).sum(1)


PadToMultiple_args = (torch.randn(6, 3, generator=torch.Generator().manual_seed(3)),)
PadToMultiple_unbacked = {0: [0]}


class CheckedInput(nn.Module):
    """Refuses an empty batch, as a library would."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, features, valid):
        features = features[valid]
        if features.shape[0] == 0:
            raise ValueError("no valid features")
        return self.linear(features).mean(0)


CheckedInput_args = (torch.randn(5, 4, generator=torch.Generator().manual_seed(4)), torch.tensor([1, 0, 1, 1, 0]) > 0)
