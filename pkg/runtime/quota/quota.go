// Package quota bounds what one identity can make a program do: the hub and the SDK price each cluster,
// the agent each source. A price is paid after data was decompressed, in the resources below; each has a
// token bucket for each identity. Who has nothing left waits, or is told to come again: others do not
// notice. Package limits of the broker keeps the rates of clients by it, too.
//
//	quotas := quota.New[wire.ClusterName](quota.Config{Rates: quota.Clusters(), Subsystem: "source"})
//	...
//	if !quotas.Spend(cluster, quota.Message(512), now) {
//		return // and ask the cluster again after quotas.Wait
//	}
//
// A call costs O(1). An identity takes memory while it has spent something that is not refilled yet, or
// was refused lately.
package quota

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Resource is what is paid for.
type Resource int

// Resources.
const (
	Messages     Resource = iota // received
	Bytes                        // of messages, decompressed, and of what deltas are worked out from
	LargeBytes                   // of those of messages of 64 KiB or more
	Writes                       // API requests
	WrittenBytes                 // sent to the API
	Records                      // lines of logs about what was refused
	CPU                          // milliseconds, of expressions of works
	resources
)

var names = [resources]string{"messages", "bytes", "large_bytes", "writes", "written_bytes", "records", "cpu_milliseconds"}

// String returns the name of r in metrics.
func (r Resource) String() string { return names[r] }

// Rate is a token bucket: what may be spent in a second on average, and at once after a pause.
type Rate struct{ PerSecond, Burst float64 }

// Rates are the rates of one identity. The zero Rate is no limit.
type Rates [resources]Rate

// Cost is what something costs.
type Cost [resources]float64

// large is the size of a message that is large: decoding one takes as long as a hundred small ones, and others wait for it.
const large = 64 << 10

// Message returns what a message of a size, decompressed, costs.
func Message(size int) Cost {
	cost := Cost{Messages: 1, Bytes: float64(size)}
	if size >= large {
		cost[LargeBytes] = float64(size)
	}
	return cost
}

// Clusters returns the rates that a source grants each cluster. An agent with 10,000 works that sends
// all their statuses after a reconnect stays below them.
func Clusters() Rates {
	return Rates{
		Messages: {PerSecond: 1_000, Burst: 20_000}, Bytes: {PerSecond: 4 << 20, Burst: 64 << 20}, LargeBytes: {PerSecond: 4 << 20, Burst: 8 << 20},
		Writes: {PerSecond: 400, Burst: 10_000}, WrittenBytes: {PerSecond: 1 << 20, Burst: 24 << 20},
		Records: {PerSecond: 1, Burst: 50},
	}
}

// Sources returns the rates that an agent grants each source. A source with 10,000 works that sends all
// of them at once stays below them.
func Sources() Rates {
	return Rates{
		Messages: {PerSecond: 1_000, Burst: 20_000}, Bytes: {PerSecond: 8 << 20, Burst: 128 << 20},
		Records: {PerSecond: 1, Burst: 50}, CPU: {PerSecond: 200, Burst: 500},
	}
}

// Memory is how long an identity is noisy after it was refused something.
const Memory = 10 * time.Minute

// Patience is how long a reserved turn may be away before its identity is noisy.
const Patience = 5 * time.Second

// maxShown is how many noisy identities the metrics name.
const maxShown = 10

// Noise is that an identity was refused something.
type Noise struct {
	// Resource that was used up first.
	Resource Resource
	// Since the first refusal, without a pause of [Memory]. Zero: it is not noisy.
	Since time.Time
}

// Config configures [New].
type Config struct {
	// Rates of each identity.
	Rates Rates
	// Subsystem is the part of the program in the names of metrics, workwire_<Subsystem>_quota_*.
	Subsystem string
}

// account is what an identity has left.
type account struct {
	left  [resources]float64 // below 0: a debt
	at    time.Time          // of left
	noise Noise
	last  time.Time // of the last refusal
}

// Quotas are the token buckets of all identities. It is safe for concurrent use, and a
// [prometheus.Collector].
type Quotas[K ~string] struct {
	config Config

	mu       sync.Mutex
	accounts map[K]*account // guarded by mu
	sweepAt  int            // number of accounts at which those that are not needed are removed
	swept    time.Time      // when they were
	// Totals, for metrics; guarded by mu, as the others.
	spent, refused [resources]float64
}

// New returns quotas of which nothing is spent.
func New[K ~string](config Config) *Quotas[K] {
	return &Quotas[K]{config: config, accounts: map[K]*account{}, sweepAt: 64}
}

// Spend takes cost from what id has left, and reports whether it may: whether something is left of each
// resource that cost names. Cost may be more than that: the debt is paid before the next call. If it may
// not, nothing is taken, and id is noisy.
func (q *Quotas[K]) Spend(id K, cost Cost, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(id, now)
	for r, n := range cost {
		if n > 0 && q.limited(r) && a.left[r] <= 0 {
			q.refused[r] += n
			a.refuse(Resource(r), now)
			return false
		}
	}
	for r, n := range cost {
		a.left[r] -= n
		q.spent[r] += n
	}
	return true
}

// Reserve takes cost from what id has left, whatever that is, and returns how long to wait before it is used:
// 0 while something is left. Who has to wait for [Patience] is noisy.
func (q *Quotas[K]) Reserve(id K, cost Cost, now time.Time) (wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(id, now)
	var slowest Resource
	for r, n := range cost {
		if n > 0 && q.limited(r) && a.left[r] <= 0 {
			if w := seconds(-a.left[r] / q.config.Rates[r].PerSecond); w >= wait {
				wait, slowest = w, Resource(r)
			}
		}
		a.left[r] -= n
		q.spent[r] += n
	}
	if wait >= Patience {
		q.refused[slowest] += cost[slowest]
		a.refuse(slowest, now)
	}
	return wait
}

// Wait returns how long it is until something is left to id of each resource that cost names; 0: there is.
func (q *Quotas[K]) Wait(id K, cost Cost, now time.Time) (wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(id, now)
	for r, n := range cost {
		if n > 0 && q.limited(r) && a.left[r] <= 0 {
			wait = max(wait, seconds((1-a.left[r])/q.config.Rates[r].PerSecond))
		}
	}
	return wait
}

// Noise returns whether id was refused something in the last [Memory].
func (q *Quotas[K]) Noise(id K, now time.Time) Noise {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a, ok := q.accounts[id]; ok && now.Sub(a.last) < Memory {
		return a.noise
	}
	return Noise{}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func (q *Quotas[K]) limited(r int) bool { return q.config.Rates[r].PerSecond > 0 }

// refuse notes a refusal. That few records are written of somebody is no reason to call it noisy.
func (a *account) refuse(r Resource, now time.Time) {
	if r == Records {
		return
	}
	if now.Sub(a.last) >= Memory {
		a.noise = Noise{Resource: r, Since: now}
	}
	a.last = now
}

// account returns the account of id, refilled. q.mu must be held.
func (q *Quotas[K]) account(id K, now time.Time) *account {
	if len(q.accounts) >= q.sweepAt || now.Sub(q.swept) > time.Minute {
		q.sweep(now)
	}
	a, ok := q.accounts[id]
	if !ok {
		a = &account{at: now}
		for r, rate := range q.config.Rates {
			a.left[r] = rate.Burst
		}
		q.accounts[id] = a
		return a
	}
	if passed := now.Sub(a.at).Seconds(); passed > 0 {
		for r, rate := range q.config.Rates {
			a.left[r] = min(rate.Burst, a.left[r]+passed*rate.PerSecond)
		}
		a.at = now
	}
	return a
}

// sweep removes accounts that are as a new one. It costs O(n) for n accounts, once a minute, or after n new ones.
func (q *Quotas[K]) sweep(now time.Time) {
	kept := map[K]*account{}
	for id, a := range q.accounts {
		full := now.Sub(a.last) >= Memory
		for r, rate := range q.config.Rates {
			full = full && a.left[r]+now.Sub(a.at).Seconds()*rate.PerSecond >= rate.Burst
		}
		if !full {
			kept[id] = a
		}
	}
	q.accounts = kept // a map does not shrink
	q.sweepAt, q.swept = max(64, 2*len(q.accounts)), now
}

// Describe implements [prometheus.Collector].
func (q *Quotas[K]) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range q.descriptions() {
		descriptions <- d
	}
}

func (q *Quotas[K]) descriptions() [3]*prometheus.Desc {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("workwire", q.config.Subsystem, name), help, labels, nil)
	}
	return [3]*prometheus.Desc{
		desc("quota_spent_total", "What identities have cost, by resource: messages, bytes (decompressed, and of what deltas change), large_bytes (of messages of 64 KiB or more), writes, written_bytes, records (log lines about what was refused), cpu_milliseconds (of expressions of works).", "resource"),
		desc("quota_refused_total", "What was refused, or had to wait, because its identity had nothing left of a resource.", "resource"),
		desc("quota_noisy", "1 for identities that had nothing left of a resource in the last 10 minutes, the 10 latest.", "identity", "resource"),
	}
}

// Collect implements [prometheus.Collector].
func (q *Quotas[K]) Collect(metrics chan<- prometheus.Metric) {
	q.mu.Lock()
	defer q.mu.Unlock()
	descriptions := q.descriptions()
	for r, name := range names {
		metrics <- prometheus.MustNewConstMetric(descriptions[0], prometheus.CounterValue, q.spent[r], name)
		metrics <- prometheus.MustNewConstMetric(descriptions[1], prometheus.CounterValue, q.refused[r], name)
	}
	type noisy struct {
		id K
		*account
	}
	var shown []noisy
	for id, a := range q.accounts {
		if time.Since(a.last) < Memory {
			shown = append(shown, noisy{id, a})
		}
	}
	slices.SortFunc(shown, func(a, b noisy) int { return cmp.Or(b.last.Compare(a.last), cmp.Compare(a.id, b.id)) })
	for _, n := range shown[:min(len(shown), maxShown)] {
		metrics <- prometheus.MustNewConstMetric(descriptions[2], prometheus.GaugeValue, 1, string(n.id), n.noise.Resource.String())
	}
}
