package delivery

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

// clusterRecord is all that is known of a cluster. There is one while the cluster has works, and while
// there is something else to remember of it, see isEmpty. What somebody says in the name of a cluster
// without works is answered without a record.
type clusterRecord struct {
	name     wire.ClusterName
	state    ClusterState
	works    workSet
	removed  workSet      // those with workRecord.removed
	heard    time.Time    // of the last message from the cluster
	sessions sessionOrder // that its agent announced
	accepts  wire.Accepts // of its agent, as its last event says
	silent   workSet      // works that await contact
	queue    workqueue.Queue[*workRecord]
	// inRoundRobin: the queue is not empty, and the cluster was not paused when it was its turn.
	inRoundRobin bool

	gained   time.Time               // when it was no longer ClusterElsewhere
	underWay int                     // publishes, questions and writes
	asked    map[questionOrder]int64 // when the newest question of an order was signed, in microseconds

	waiting      int       // bytes of the statuses that wait to be stored
	owing        bool      // statuses were dropped, for want of room
	storingLarge [2]bool   // a large status, by isOwned
	askAgain     time.Time // when the cluster may ask questionBurst times again

	distrust   distrust
	noise      quota.Noise // as reported
	divergence *divergence // nil: the last digest was equal

	overtaken map[types.UID]overtaking // of works whose agent had a generation above the source's; nil: none
}

// isEmpty reports whether nothing needs to be remembered of c. The pace of its questions does, until
// [core.sweep] has found that it is at full burst again.
func (d *core) isEmpty(c *clusterRecord) bool {
	return c.works.len() == 0 && c.state == d.state && c.gained.IsZero() && c.underWay == 0 && c.asked == nil && c.waiting == 0 && !c.owing && c.storingLarge == [2]bool{} &&
		c.askAgain.IsZero() && c.distrust == distrust{} && c.noise == quota.Noise{} && c.divergence == nil
}

// cluster returns the record of a cluster, which it makes if necessary. The caller releases it.
func (d *core) cluster(name wire.ClusterName) *clusterRecord {
	c, ok := d.clusters[name]
	if !ok {
		c = &clusterRecord{
			name: name, state: d.state, queue: workqueue.DefaultQueue[*workRecord](),
			works: workSet{kind: setOfCluster}, removed: workSet{kind: setRemoved}, silent: workSet{kind: setSilent},
		}
		d.clusters[name] = c
	}
	return c
}

// stateOf returns the state of a cluster.
func (d *core) stateOf(cluster wire.ClusterName) ClusterState {
	if c, ok := d.clusters[cluster]; ok {
		return c.state
	}
	return d.state
}

// serves reports whether no other program serves a cluster.
func (d *core) serves(cluster wire.ClusterName) bool { return d.stateOf(cluster) != ClusterElsewhere }

// release forgets c if nothing needs to be remembered of it.
func (d *core) release(c *clusterRecord) {
	if d.isEmpty(c) && d.clusters[c.name] == c {
		delete(d.clusters, c.name)
	}
}

// sweep forgets what time has made unnecessary, once in the time of a burst of questions. It costs O(n)
// for n clusters.
func (d *core) sweep(now time.Time) {
	if now.Sub(d.swept) <= questionBurst*questionInterval {
		return
	}
	d.swept = now
	for _, c := range d.clusters {
		if !c.askAgain.After(now) {
			c.askAgain = time.Time{}
			d.release(c)
		}
	}
}

// countClusters returns the number of clusters that match.
func (d *core) countClusters(match func(*clusterRecord) bool) (n int) {
	for _, c := range d.clusters {
		if match(c) {
			n++
		}
	}
	return n
}

// workSet is a set of works of one cluster. A work has its position in each kind of set, so that all
// operations cost O(1), and the order depends on nothing but the operations.
type workSet struct {
	kind int
	list []*workRecord
}

// Kinds of sets.
const (
	setOfCluster = iota
	setRemoved
	setSilent
	setKinds
)

func (s *workSet) len() int { return len(s.list) }

func (s *workSet) has(w *workRecord) bool { return w.positions[s.kind] > 0 }

func (s *workSet) add(w *workRecord) {
	if !s.has(w) {
		s.list = append(s.list, w)
		w.positions[s.kind] = int32(len(s.list))
	}
}

func (s *workSet) remove(w *workRecord) {
	if !s.has(w) {
		return
	}
	last := len(s.list) - 1
	moved := s.list[last]
	s.list[w.positions[s.kind]-1], moved.positions[s.kind] = moved, w.positions[s.kind]
	s.list[last], s.list = nil, s.list[:last]
	w.positions[s.kind] = 0
}
