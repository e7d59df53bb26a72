package wire_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/wire"
)

var oneSource = wire.Topics{
	SourceEvents: "sources/harbor/clusters/+/sourceevents",
	AgentEvents:  "sources/harbor/clusters/+/agentevents",
}

var everySource = wire.Topics{
	SourceEvents:    "sources/+/clusters/+/sourceevents",
	AgentEvents:     "sources/+/clusters/+/agentevents",
	SourceBroadcast: "sources/+/sourcebroadcast",
	AgentBroadcast:  "clusters/+/agentbroadcast",
}

// with gives topics with one pattern changed.
func with(t wire.Topics, change func(*wire.Topics)) wire.Topics {
	change(&t)
	return t
}

func TestTopicsEverySource(t *testing.T) {
	for name, c := range map[string]struct{ of, want wire.Topics }{
		"one source":   {oneSource, with(everySource, func(t *wire.Topics) { t.SourceBroadcast, t.AgentBroadcast = "", "" })},
		"every source": {everySource, everySource},
		"a broadcast": {
			with(everySource, func(t *wire.Topics) { t.SourceBroadcast = "sources/harbor/sourcebroadcast" }), everySource,
		},
		"shared": {with(everySource, func(t *wire.Topics) { t.AgentEvents = "$share/pair/sources/harbor/clusters/+/agentevents" }), everySource},
	} {
		if got, err := c.of.EverySource(); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := (wire.Topics{SourceEvents: "x"}).EverySource(); err == nil {
		t.Error("invalid topics have those of every source")
	}
}

func TestTopicsValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		topics wire.Topics
		want   []string // all in the error; none means no error
	}{
		"one source":   {oneSource, nil},
		"every source": {everySource, nil},
		"shared": {with(everySource, func(t *wire.Topics) {
			t.AgentEvents = "$share/hub-2/" + t.AgentEvents
			t.AgentBroadcast = "$share/hub-2/" + t.AgentBroadcast
		}), nil},
		"other words": {wire.Topics{SourceEvents: "hubs/a-1/spokes/b-2/sourceevents", AgentEvents: "hubs/a-1/spokes/b-2/agentevents"}, nil},
		"nothing": {wire.Topics{}, []string{"topics.sourceEvents is required", "topics.agentEvents is required",
			"sources/<source>/clusters/+/sourceevents"}},
		"every fault at once": {wire.Topics{SourceEvents: "a", AgentEvents: "b", SourceBroadcast: "c", AgentBroadcast: "d"},
			[]string{`topics.sourceEvents: "a"`, `topics.agentEvents: "b"`, `topics.sourceBroadcast: "c"`, `topics.agentBroadcast: "d"`}},
		"swapped": {wire.Topics{SourceEvents: oneSource.AgentEvents, AgentEvents: oneSource.SourceEvents},
			[]string{"topics.sourceEvents", "topics.agentEvents"}},
		"upper case":     {with(oneSource, func(t *wire.Topics) { t.SourceEvents = "sources/Harbor/clusters/+/sourceevents" }), []string{"topics.sourceEvents"}},
		"multi level":    {with(oneSource, func(t *wire.Topics) { t.SourceEvents = "sources/#/sourceevents" }), []string{"topics.sourceEvents"}},
		"leading slash":  {with(oneSource, func(t *wire.Topics) { t.AgentEvents = "/" + t.AgentEvents }), []string{"topics.agentEvents"}},
		"trailing":       {with(oneSource, func(t *wire.Topics) { t.AgentEvents += "/x" }), []string{"topics.agentEvents"}},
		"line break":     {with(oneSource, func(t *wire.Topics) { t.AgentEvents += "\n" }), []string{"topics.agentEvents"}},
		"share unnamed":  {with(oneSource, func(t *wire.Topics) { t.AgentEvents = "$share//" + t.AgentEvents }), []string{"topics.agentEvents"}},
		"half wildcard":  {with(oneSource, func(t *wire.Topics) { t.AgentEvents = "sources/a+/clusters/+/agentevents" }), []string{"topics.agentEvents"}},
		"long broadcast": {with(oneSource, func(t *wire.Topics) { t.AgentBroadcast = t.AgentEvents }), []string{"topics.agentBroadcast"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.topics.Validate()
			if (err != nil) != (len(tc.want) > 0) {
				t.Fatalf("Validate = %v, want an error: %v", err, len(tc.want) > 0)
			}
			for _, text := range tc.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("Validate = %v, want it to say %q", err, text)
				}
			}
		})
	}
}

func TestForAgent(t *testing.T) {
	type want struct {
		subscriptions []string
		source        wire.SourceID // named by the topics
		events        string        // to source harbor
		broadcast     string
		err           string
	}
	for name, tc := range map[string]struct {
		topics  wire.Topics
		cluster wire.ClusterName
		want    want
	}{
		"one source": {oneSource, "quay-7", want{
			subscriptions: []string{"sources/harbor/clusters/quay-7/sourceevents"},
			source:        "harbor", events: "sources/harbor/clusters/quay-7/agentevents"}},
		"every source": {everySource, "quay-7", want{
			subscriptions: []string{"sources/+/clusters/quay-7/sourceevents", "sources/+/sourcebroadcast"},
			events:        "sources/harbor/clusters/quay-7/agentevents", broadcast: "clusters/quay-7/agentbroadcast"}},
		"cluster named already": {wire.Topics{SourceEvents: "sources/harbor/clusters/quay-7/sourceevents",
			AgentEvents: "sources/harbor/clusters/quay-7/agentevents", AgentBroadcast: "clusters/quay-7/agentbroadcast"}, "quay-7", want{
			subscriptions: []string{"sources/harbor/clusters/quay-7/sourceevents"},
			source:        "harbor", events: "sources/harbor/clusters/quay-7/agentevents", broadcast: "clusters/quay-7/agentbroadcast"}},
		"shared subscription": {with(oneSource, func(t *wire.Topics) { t.SourceEvents = "$share/pair/" + t.SourceEvents }), "quay-7", want{
			subscriptions: []string{"$share/pair/sources/harbor/clusters/quay-7/sourceevents"},
			source:        "harbor", events: "sources/harbor/clusters/quay-7/agentevents"}},
		"share is not published to": {with(oneSource, func(t *wire.Topics) { t.AgentEvents = "$share/pair/" + t.AgentEvents }), "quay-7", want{
			subscriptions: []string{"sources/harbor/clusters/quay-7/sourceevents"},
			source:        "harbor", events: "sources/harbor/clusters/quay-7/agentevents"}},
		"wrong shape":         {with(oneSource, func(t *wire.Topics) { t.SourceEvents = "x" }), "quay-7", want{err: "topics.sourceEvents"}},
		"wildcard cluster":    {oneSource, "+", want{err: `cluster name "+"`}},
		"no cluster":          {oneSource, "", want{err: `cluster name ""`}},
		"cluster of levels":   {oneSource, "a/b", want{err: `cluster name "a/b"`}},
		"cluster in capitals": {oneSource, "Quay", want{err: `cluster name "Quay"`}},
		"another cluster's specs": {with(oneSource, func(t *wire.Topics) { t.SourceEvents = "sources/harbor/clusters/quay-8/sourceevents" }), "quay-7",
			want{err: "topics.sourceEvents"}},
		"another cluster's events": {with(oneSource, func(t *wire.Topics) { t.AgentEvents = "sources/harbor/clusters/quay-8/agentevents" }), "quay-7",
			want{err: "topics.agentEvents"}},
		"another cluster's broadcast": {with(oneSource, func(t *wire.Topics) { t.AgentBroadcast = "clusters/quay-8/agentbroadcast" }), "quay-7",
			want{err: "topics.agentBroadcast"}},
		"two sources": {with(oneSource, func(t *wire.Topics) { t.AgentEvents = "sources/pier/clusters/+/agentevents" }), "quay-7",
			want{err: "must be the same"}},
		"answers for one source only": {with(everySource, func(t *wire.Topics) { t.AgentEvents = oneSource.AgentEvents }), "quay-7",
			want{err: "must be the same"}},
	} {
		t.Run(name, func(t *testing.T) {
			topics, err := tc.topics.ForAgent(tc.cluster)
			if tc.want.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want.err) {
					t.Fatalf("ForAgent = %v, want an error with %q", err, tc.want.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := want{subscriptions: topics.Subscriptions()}
			got.source, _ = topics.Source()
			got.broadcast, _ = topics.Broadcast()
			if got.events, err = topics.Events("harbor"); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.subscriptions, tc.want.subscriptions) {
				t.Errorf("subscribes to %q, want %q", got.subscriptions, tc.want.subscriptions)
			}
			if got.source != tc.want.source || got.events != tc.want.events || got.broadcast != tc.want.broadcast {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			for _, source := range []wire.SourceID{"", "+", "#", "a/b", "Harbor"} {
				if topic, err := topics.Events(source); err == nil {
					t.Errorf("Events(%q) = %q, want an error", source, topic)
				}
			}
			if topic, err := topics.Events("pier"); (err == nil) != (tc.want.source == "") {
				t.Errorf("Events of another source = %q, %v", topic, err)
			}
		})
	}
}

func TestForSource(t *testing.T) {
	type want struct {
		subscriptions []string
		specs         string // to cluster quay-7
		broadcast     string
		err           string
	}
	for name, tc := range map[string]struct {
		topics wire.Topics
		source wire.SourceID
		want   want
	}{
		"one source": {oneSource, "harbor", want{
			subscriptions: []string{"sources/harbor/clusters/+/agentevents"}, specs: "sources/harbor/clusters/quay-7/sourceevents"}},
		"with broadcasts": {with(everySource, func(t *wire.Topics) { t.AgentEvents = oneSource.AgentEvents }), "harbor", want{
			subscriptions: []string{"sources/harbor/clusters/+/agentevents", "clusters/+/agentbroadcast"},
			specs:         "sources/harbor/clusters/quay-7/sourceevents", broadcast: "sources/harbor/sourcebroadcast"}},
		"shared": {with(oneSource, func(t *wire.Topics) { t.AgentEvents = "$share/hub/" + t.AgentEvents }), "harbor", want{
			subscriptions: []string{"$share/hub/sources/harbor/clusters/+/agentevents"}, specs: "sources/harbor/clusters/quay-7/sourceevents"}},
		"wrong shape":            {with(oneSource, func(t *wire.Topics) { t.AgentEvents = "x" }), "harbor", want{err: "topics.agentEvents"}},
		"wildcard source":        {oneSource, "+", want{err: `source id "+"`}},
		"no source":              {oneSource, "", want{err: `source id ""`}},
		"agent events of all":    {everySource, "harbor", want{err: "must name the source"}},
		"another source":         {oneSource, "pier", want{err: "topics.sourceEvents"}},
		"another's agent events": {with(everySource, func(t *wire.Topics) { t.AgentEvents = oneSource.AgentEvents }), "pier", want{err: "topics.agentEvents"}},
		"another's broadcast": {with(oneSource, func(t *wire.Topics) { t.SourceBroadcast = "sources/pier/sourcebroadcast" }), "harbor",
			want{err: "topics.sourceBroadcast"}},
	} {
		t.Run(name, func(t *testing.T) {
			topics, err := tc.topics.ForSource(tc.source)
			if tc.want.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want.err) {
					t.Fatalf("ForSource = %v, want an error with %q", err, tc.want.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			specs, err := topics.Specs("quay-7")
			if err != nil {
				t.Fatal(err)
			}
			broadcast, _ := topics.Broadcast()
			if !slices.Equal(topics.Subscriptions(), tc.want.subscriptions) {
				t.Errorf("subscribes to %q, want %q", topics.Subscriptions(), tc.want.subscriptions)
			}
			if specs != tc.want.specs || broadcast != tc.want.broadcast {
				t.Errorf("publishes to %q and %q, want %q and %q", specs, broadcast, tc.want.specs, tc.want.broadcast)
			}
			for _, cluster := range []wire.ClusterName{"", "+", "a/b"} {
				if topic, err := topics.Specs(cluster); err == nil {
					t.Errorf("Specs(%q) = %q, want an error", cluster, topic)
				}
			}
		})
	}
	fixed, err := wire.Topics{SourceEvents: "sources/harbor/clusters/quay-7/sourceevents", AgentEvents: oneSource.AgentEvents}.ForSource("harbor")
	if err != nil {
		t.Fatal(err)
	}
	if topic, err := fixed.Specs("quay-8"); err == nil {
		t.Errorf("Specs of a cluster that the topics do not name = %q, want an error", topic)
	}
}

func TestSenderOf(t *testing.T) {
	for topic, want := range map[string]struct {
		source  wire.SourceID
		cluster wire.ClusterName
		ok      bool
	}{
		"sources/harbor/clusters/quay-7/sourceevents":          {"harbor", "quay-7", true},
		"sources/harbor/clusters/quay-7/agentevents":           {"harbor", "quay-7", true},
		"hubs/harbor/spokes/quay-7/agentevents":                {"harbor", "quay-7", true},
		"sources/harbor/sourcebroadcast":                       {"harbor", "", true},
		"clusters/quay-7/agentbroadcast":                       {"", "quay-7", true},
		"sources/harbor/clusters/quay-7/otherevents":           {},
		"sources/harbor/clusters/quay-7":                       {},
		"sources/harbor/clusters/quay-7/agentevents/more":      {},
		"$share/a/sources/harbor/clusters/quay-7/sourceevents": {},
		"$share/a/clusters/quay-7/agentbroadcast":              {},
		"sources/+/clusters/quay-7/sourceevents":               {},
		"":                                                     {},
	} {
		source, cluster, ok := wire.TopicSender(topic)
		if source != want.source || cluster != want.cluster || ok != want.ok {
			t.Errorf("SenderOf(%q) = %q, %q, %v; want %+v", topic, source, cluster, ok, want)
		}
	}
}
