package leadership

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
)

func TestAssignment(t *testing.T) {
	for name, c := range map[string]struct {
		assignment
		want assignmentStep
	}{
		"ours":                                {assignment{selected: true, holder: "me"}, stepServe},
		"ours, and busy":                      {assignment{selected: true, holder: "me", busy: true}, stepServe},
		"claimed":                             {assignment{selected: true, holder: "me", catchingUp: true}, stepCatchUp},
		"nobody's":                            {assignment{selected: true}, stepClaim},
		"another's, which runs":               {assignment{selected: true, holder: "other"}, stepWait},
		"another's, which has ended":          {assignment{selected: true, holder: "other", ended: true}, stepClaim},
		"another's, claimed before":           {assignment{selected: true, holder: "other", catchingUp: true}, stepWait},
		"moved away, with requests under way": {assignment{holder: "me", busy: true}, stepDrain},
		"moved away":                          {assignment{holder: "me"}, stepRelease},
		"moved away while it was claimed":     {assignment{holder: "me", catchingUp: true}, stepRelease},
		"moved away, and let go":              {assignment{}, stepNone},
		"never ours":                          {assignment{holder: "other"}, stepNone},
		"never ours, its hub has ended":       {assignment{holder: "other", ended: true}, stepNone},
	} {
		t.Run(name, func(t *testing.T) {
			c.self = "me"
			if got := c.decide(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestHolds(t *testing.T) {
	selector, err := labels.Parse("shard notin (a)")
	if err != nil {
		t.Fatal(err)
	}
	mine := NewShard(ShardConfig{Hub: "me", Selector: selector})
	managed := func(shard, holder string) *clusterv1.ManagedCluster {
		m := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{clusterv1.HubAnnotationKey: holder}}}
		if shard != "" {
			m.Labels = map[string]string{"shard": shard}
		}
		return m
	}
	for name, c := range map[string]struct {
		shard   *Shard
		cluster *clusterv1.ManagedCluster
		want    bool
	}{
		"held":                          {mine, managed("b", "me"), true},
		"held, without the label":       {mine, managed("", "me"), true},
		"moved away, and not let go":    {mine, managed("a", "me"), false},
		"selected, and another's":       {mine, managed("b", "other"), false},
		"selected, and nobody's":        {mine, managed("b", ""), false},
		"no ManagedCluster":             {mine, nil, false},
		"all clusters: another's":       {nil, managed("a", "other"), true},
		"all clusters: none registered": {nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.shard.Holds(c.cluster); got != c.want {
				t.Errorf("held: %t, want %t", got, c.want)
			}
		})
	}
}

func TestContended(t *testing.T) {
	s, start := NewShard(ShardConfig{}), time.Unix(1_790_000_000, 0)
	for i, c := range []struct {
		after     time.Duration
		waiting   bool
		report    bool
		contended int
	}{
		{0, true, false, 0}, {29 * time.Second, true, false, 0}, {30 * time.Second, true, true, 1}, {time.Hour, true, false, 1},
		{time.Hour, false, false, 0}, {time.Hour, true, false, 0}, {2 * time.Hour, true, true, 1},
	} {
		if got := s.waits("c", c.waiting, start.Add(c.after)); got != c.report || s.contended() != c.contended {
			t.Errorf("step %d: report %t, %d contended, want %+v", i, got, s.contended(), c)
		}
	}
}
