package hostile

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/test/kit/wirekit"
)

// generator makes messages that the broker lets pass and that the hub or an agent has to decode: of every type,
// most of them as they should be but for a few things. It is for one goroutine.
type generator struct {
	*rand.Rand
	sender             string
	sources, clusters  []string // the own one first
	uids               []string // of works that exist
	target             string   // the namespace of objects
	sequence           int64
	fromHub            bool // speaks as a source
	hashes, identities []string
}

func (w *world) generator(seed uint64, asSource bool) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), sequence: sequenceAt(time.Now()), fromHub: asSource, target: w.Targets[honest],
		identities: []string{"", "5b9c0fd3-f7e1-4c4b-8a3c-3b86ec3f5d0e", "other"}}
	g.hashes = []string{"", "none", strings.Repeat("0", 64), fmt.Sprintf("%064x", g.Uint64()), strings.Repeat("f", 200)}
	if asSource {
		g.Rand = rand.New(rand.NewPCG(seed, 1))
		g.sender, g.sources, g.clusters = string(w.rogue), []string{string(w.rogue), string(w.Source)}, []string{string(w.neighbour), string(w.evil)}
		for i := range 20 {
			g.uids = append(g.uids, fmt.Sprintf("rogue-%d", i))
		}
		return g
	}
	g.sender, g.sources, g.clusters = string(w.evil)+"-agent", []string{string(w.Source), string(w.rogue)}, []string{string(w.evil), string(w.neighbour)}
	for _, work := range w.mine {
		g.uids = append(g.uids, string(work.UID))
	}
	return g
}

// rarely is true one time of n.
func (g *generator) rarely(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// mostly returns usual, and rarely one of the others.
func mostly[T any](g *generator, usual T, others ...T) T {
	if g.rarely(12) {
		return pick(g, others...)
	}
	return usual
}

// text returns a text of nearly any length, 60,000 bytes at most.
func (g *generator) text() string {
	return strings.Repeat(pick(g, "a", "é", "{", `"`, "\\", "\u200b", "€"), mostly(g, g.IntN(20), 0, 64, 65, 253, 254, 1_024, 20_000))
}

func (g *generator) uid() string {
	return mostly(g, pick(g, g.uids...), "", "unknown", fmt.Sprintf("unknown-%d", g.IntN(100_000)), g.text(), "../x", "*")
}

func (g *generator) generation() string {
	return mostly(g, fmt.Sprint(1+g.IntN(3)), "0", "-1", "9223372036854775807", "9223372036854775808", "x", "1000000", "")
}

var eventTypes = []string{
	manifestBundles + "spec.create_request", manifestBundles + "spec.update_request", manifestBundles + "spec.delete_request",
	manifestBundles + "spec.resync_request", manifestBundles + "spec.resync_response",
	manifestBundles + "status.create_request", manifestBundles + "status.update_request", manifestBundles + "status.delete_request",
	manifestBundles + "status.resync_request", manifestBundles + "status.resync_response",
	"dev.workwire.v1alpha1.agents.status.update_request", "dev.workwire.v1alpha1.digests.status.update_request",
	"dev.workwire.v1alpha1.deltas.status.update_request", "dev.workwire.v1alpha1.deltas.spec.update_request",
	"dev.workwire.v1alpha1.sources.spec.update_request", "dev.workwire.v1alpha1.dryruns.spec.create_request",
	"dev.workwire.v1alpha1.dryruns.status.create_request",
}

func (g *generator) events(n int) []cloudevents.Event {
	events := make([]cloudevents.Event, n)
	for i := range events {
		events[i] = g.event()
	}
	return events
}

// event returns the next message. Its data is for its type, and sometimes for another one.
func (g *generator) event() cloudevents.Event {
	kind := pick(g, eventTypes...)
	data := g.data(mostly(g, kind, eventTypes...))
	x := map[string]string{
		"resourceid": g.uid(), "resourceversion": g.generation(),
		"clustername":    mostly(g, g.clusters[0], append(g.clusters, "", g.text())...),
		"originalsource": mostly(g, g.sources[0], append(g.sources, "", g.text())...),
		"metadata":       g.metadata(),
	}
	if !g.fromHub {
		g.sequence += int64(g.IntN(1_000))
		x["sequenceid"] = mostly(g, fmt.Sprint(g.sequence), "0", "-1", "9223372036854775807", "x", fmt.Sprint(g.sequence/2))
		x["statushash"] = pick(g, g.hashes...)
		x["session"] = mostly(g, "s1", "", "s2", g.text())
	} else {
		x["contenthash"] = mostly(g, "", g.hashes...)
		x["sourceidentity"] = mostly(g, g.identities[0], g.identities...)
		x["authoritative"] = mostly(g, "", "true", "false", "x")
		if strings.HasSuffix(kind, "delete_request") || g.rarely(30) {
			x["deletiontimestamp"] = mostly(g, "2026-01-01T00:00:00Z", "", "x", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z")
			data = mostly(g, nil, data)
		}
	}
	for range g.IntN(3) {
		x[pick(g, "accepts", "logtracing", "traceparent", "tracestate", "receivedtime", "appliedtime", "readytime", "signature", "expirytime", "extra")] =
			pick(g, "zstd,deltas", "{}", "2026-01-01T00:00:00Z", "v1:0000000000000000:1:AAAA", g.text())
	}
	for name, value := range x {
		if value == "" || g.rarely(60) {
			delete(x, name)
		}
	}
	return event(mostly(g, kind, "", "x", kind+".x", "a.b.c.d.e."+g.text()), mostly(g, g.sender, "somebody", g.text()), data, x)
}

func (g *generator) metadata() string {
	name := mostly(g, fmt.Sprintf("w%d", g.IntN(20)), "", g.text())
	text, _ := json.Marshal(map[string]any{"name": name, "namespace": g.clusters[0], "uid": g.uid(), "generation": g.IntN(4),
		"labels": map[string]string{"a": g.text()}, "finalizers": []string{g.text()}})
	return mostly(g, string(text), "", "{", "[]", "null", `{"name":1}`, `{"creationTimestamp":"x"}`)
}

// list returns a JSON list of mostly few, sometimes of very many and sometimes of equal items.
func (g *generator) list(item func() string) string {
	n := mostly(g, g.IntN(6), 0, 100, 5_001, 20_001, 100_003)
	same := item()
	var text strings.Builder
	text.WriteByte('[')
	for i := range n {
		if i > 0 {
			text.WriteByte(',')
		}
		if i < 50 && !g.rarely(4) {
			same = item()
		}
		if text.WriteString(same); text.Len() > most {
			break
		}
	}
	return text.String() + "]"
}

func quoted(text string) string {
	q, _ := json.Marshal(text)
	return string(q)
}

// data returns the data of a type of event: compressed or not, and rarely damaged.
func (g *generator) data(kind string) []byte {
	plain := []byte(g.json(kind))
	switch {
	case g.rarely(25):
		plain = pick(g, []byte{}, []byte("null"), []byte("[]"), []byte(`"x"`), []byte(strings.Repeat("[", 20_000)),
			[]byte(strings.Repeat(`{"a":`, 20_000)), []byte(list(`{"a":[`, "{}", "]}")), plain[:g.IntN(len(plain)+1)])
	case g.rarely(25) && len(plain) > 0:
		plain[g.IntN(len(plain))] = byte(g.Uint32())
	}
	if len(plain) < 100_000 && g.rarely(2) {
		return plain
	}
	packed := wirekit.Compressed(string(plain))
	if g.rarely(25) {
		packed = packed[:g.IntN(len(packed))]
	}
	if g.rarely(25) {
		packed[g.IntN(len(packed)+1)%max(len(packed), 1)] ^= byte(g.Uint32())
	}
	return packed
}

func (g *generator) json(kind string) string {
	version := func() string {
		return mostly(g, fmt.Sprintf(`{"resourceID":%s,"resourceVersion":%d,"statusHash":%s,"contentHash":%s}`,
			quoted(g.uid()), g.IntN(3), quoted(pick(g, g.hashes...)), quoted(pick(g, g.hashes...))), `{}`, `null`, `{"resourceID":1}`, `{"probe":true}`)
	}
	switch {
	case strings.HasSuffix(kind, "spec.resync_request"):
		return fmt.Sprintf(`{"resourceVersions":%s,"partial":%v}`, g.list(version), g.rarely(2))
	case strings.HasSuffix(kind, "status.resync_request"):
		return mostly(g, fmt.Sprintf(`{"statusHashes":%s,"reply":%v}`, g.list(version), g.rarely(2)),
			fmt.Sprintf(`{"statusHashes":%s,"buckets":{"count":%d,"indices":%s}}`, g.list(version), pick(g, 0, 1, 64, -1, 1<<30, 1<<40),
				g.list(func() string { return fmt.Sprint(g.IntN(70) - 2) })))
	case strings.Contains(kind, ".agents."):
		return fmt.Sprintf(`{"present":%v,"session":%s}`, g.rarely(2), quoted(mostly(g, fmt.Sprint("s", g.IntN(1_000)), g.text())))
	case strings.Contains(kind, ".digests."):
		digest := func() string { return quoted(mostly(g, fmt.Sprintf("%016x", g.Uint64()), "", "x", g.text())) }
		return fmt.Sprintf(`{"works":%s,"contents":%s}`, g.list(digest), g.list(digest))
	case strings.Contains(kind, ".deltas."):
		return fmt.Sprintf(`{"base":%s,"parts":%s}`, quoted(pick(g, g.hashes...)), g.list(func() string {
			return mostly(g, `{"text":`+quoted(pick(g, g.manifest(), g.condition(), g.text()))+`}`, fmt.Sprintf(`{"skip":%d,"count":%d}`, g.IntN(5)-1, pick(g, 0, 1, -1, 1<<40)))
		}))
	case strings.Contains(kind, ".sources."):
		return fmt.Sprintf(`{"instance":%s,"program":%s,"heard":%s}`, quoted(g.text()), quoted(g.text()), g.list(func() string { return quoted(g.text()) }))
	case strings.Contains(kind, "dryruns.spec"):
		return fmt.Sprintf(`{"work":%s,"bundle":%s}`, quoted(mostly(g, "w1", "", g.text())), g.bundle())
	case strings.Contains(kind, "dryruns.status"):
		return fmt.Sprintf(`{"objects":%s}`, g.list(func() string { return fmt.Sprintf(`{"kind":"ConfigMap","result":%s}`, quoted(g.text())) }))
	case strings.Contains(kind, "status."):
		return fmt.Sprintf(`{"conditions":%s,"resourceStatus":%s}`, g.list(g.condition), g.list(func() string {
			return mostly(g, fmt.Sprintf(`{"resourceMeta":{"ordinal":%d,"kind":"ConfigMap","resource":"configmaps","version":"v1","name":%s},"conditions":%s}`,
				g.IntN(3), quoted(g.text()), g.list(g.condition)), `{}`, `null`)
		}))
	default:
		return g.bundle()
	}
}

func (g *generator) condition() string {
	return mostly(g, fmt.Sprintf(`{"type":%s,"status":"True","reason":"R","message":%s,"lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1}`,
		quoted(mostly(g, pick(g, "Applied", "Available", "Deleting", "DeletionHeld", "C"), "Deleted", g.text())), quoted(g.text())),
		`{}`, `null`, `{"status":1}`, fmt.Sprintf(`{"type":"C","status":%s,"reason":%s}`, quoted(g.text()), quoted(g.text())))
}

// manifest returns a ConfigMap, one of 20, and rarely something else. None does harm but by its cost.
func (g *generator) manifest() string {
	return mostly(g, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"rogue-%d","namespace":%q},"data":{"k":%s}}`,
		g.IntN(20), g.target, quoted(g.text())),
		`{}`, `null`, `[]`, `{"apiVersion":"v1","kind":"Unknown","metadata":{"name":"x"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"missing"}}`,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%s,"namespace":%q}}`, quoted(g.text()), g.target),
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"a":`+strings.Repeat("[", 300)+strings.Repeat("]", 300)+"}")
}

func (g *generator) bundle() string {
	config := func() string {
		return fmt.Sprintf(`{"resourceIdentifier":{"resource":"configmaps","name":%s,"namespace":"*"},"feedbackRules":[{"type":"JSONPaths","jsonPaths":%s}],`+
			`"conditionRules":%s,"updateStrategy":%s}`, quoted(mostly(g, "*", "", g.text())),
			g.list(func() string {
				return fmt.Sprintf(`{"name":"v","path":%s}`, quoted(mostly(g, ".data.k", "..", "..a..b..c", "[", ".data[?(@.k==1)]", g.text())))
			}),
			g.list(func() string {
				return fmt.Sprintf(`{"condition":"C%d","type":"CEL","celExpressions":[%s]}`, g.IntN(3),
					quoted(mostly(g, "true", "object.data.all(a, object.data.all(b, a == b))", "1/0 == 1", "(", g.text())))
			}),
			mostly(g, `{}`, `null`, `{"type":"ReadOnly"}`, `{"type":"x"}`, `{"type":"ServerSideApply","serverSideApply":{"force":true,"ignoreFields":[{"condition":"OnSpokePresent","jqPathExpressions":[".. as $a | .. as $b | select($a == 1)"]}]}}`))
	}
	return fmt.Sprintf(`{"manifests":%s,"manifestConfigs":%s,"executer":%s,"deleteOption":%s}`, g.list(g.manifest), g.list(config),
		mostly(g, `null`, `{}`, `{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"missing","name":"x"}}}`),
		mostly(g, `null`, `{}`, `{"propagationPolicy":"Orphan"}`, `{"propagationPolicy":"x"}`))
}
