"""Reviews of rights."""

from kcover_portal.kube.wire import base


class ReviewStatus(base.Struct, frozen=True):
    allowed: bool = False


class AccessReview(base.Struct, frozen=True):
    status: ReviewStatus = ReviewStatus()
