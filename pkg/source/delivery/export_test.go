package delivery

import "github.com/workwire/workwire/pkg/wire"

// OwnDigest computes what a digest is compared with.
func OwnDigest(e *Engine, cluster wire.ClusterName, buckets int) ([]wire.BucketDigest, []bool) {
	return e.ownDigest(cluster, buckets)
}
