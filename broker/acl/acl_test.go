package acl_test

import (
	"strings"
	"testing"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit/acltest"
)

var (
	agent    = acl.Identity{Role: acl.Agent, ID: "c1"}
	source   = acl.Identity{Role: acl.Source, ID: "hub1"}
	monitor  = acl.Identity{Role: acl.Monitor, ID: "watch"}
	observer = acl.Identity{Role: acl.Observer, ID: "ops"}
	joiner   = acl.Identity{Role: acl.Joiner, ID: "any"}
)

// TestAttempts checks the rules with the attempts of all brokers.
func TestAttempts(t *testing.T) {
	for _, a := range acltest.Attempts() {
		if got := acl.Allow(a.Who, a.Action, a.Topic); got != a.Allowed {
			t.Errorf("%v: got %v, want %v", a, got, a.Allowed)
		}
	}
}

// TestAllow checks cases that the attempts do not have: other words, invalid topics and filters,
// and invalid identities.
func TestAllow(t *testing.T) {
	const pub, sub = acl.Publish, acl.Subscribe
	for _, test := range []struct {
		id     acl.Identity
		action acl.Action
		topic  string
		want   bool
	}{
		{agent, sub, "hubs/+/spokes/c1/sourceevents", true},
		{agent, sub, "$share/a-1/sources/+/sourcebroadcast", true},
		{agent, pub, "sources/any-0/clusters/c1/agentevents", true},
		{source, sub, "clusters/c9/agentbroadcast", true},

		{agent, sub, "+/+/+/c1/sourceevents", false},
		{agent, sub, "", false},
		{agent, sub, "/", false},
		{agent, sub, "$share/+/sources/+/clusters/c1/sourceevents", false},
		{agent, sub, "$share//sources/+/clusters/c1/sourceevents", false},
		{agent, sub, "$share/replicas", false},
		{agent, sub, "$share/replicas/$share/x/sources/+/clusters/c1/sourceevents", false},
		{agent, sub, "$SHARE/replicas/sources/+/clusters/c1/sourceevents", false},
		{agent, sub, "sources/+/clusters/c1/sourceevents/", false},
		{agent, sub, "/sources/+/clusters/c1/sourceevents", false},
		{agent, sub, "Sources/+/clusters/c1/sourceevents", false},
		{agent, sub, "sources/Hub/clusters/c1/sourceevents", false},
		{agent, sub, "sources//clusters/c1/sourceevents", false},
		{agent, pub, "sources/+/clusters/c1/agentevents", false},
		{agent, pub, "clusters/+/agentbroadcast", false},
		{agent, pub, "$share/g/sources/hub1/clusters/c1/agentevents", false},
		{source, pub, "sources/hub1/clusters/+/sourceevents", false},
		{monitor, sub, "$SYS/#", false},
		{monitor, sub, "sources/+/sourcebroadcast", false},
		{monitor, sub, "clusters/watch/agentbroadcast", false},
		{monitor, pub, "clusters/watch/agentbroadcast", false},
		{monitor, pub, "sources/watch/sourcebroadcast", false},
		{agent, sub, "sources/" + strings.Repeat("a", 63) + "/sourcebroadcast", true},
		{agent, sub, "sources/" + strings.Repeat("a", 64) + "/sourcebroadcast", false},
		{agent, sub, strings.Repeat("a", 64) + "/+/sourcebroadcast", false},
		{agent, sub, "$share/" + strings.Repeat("g", 64) + "/sources/+/sourcebroadcast", false},
		{acl.Identity{Role: acl.Agent, ID: strings.Repeat("c", 64)}, sub, "sources/+/sourcebroadcast", false},

		{observer, sub, "sources/+/clusters/+/sourceevents", true},
		{observer, sub, "sources/hub1/clusters/c1/agentevents", true},
		{observer, sub, "sources/+/sourcebroadcast", true},
		{observer, sub, "clusters/+/agentbroadcast", true},
		{observer, sub, "$share/g/sources/hub1/clusters/+/agentevents", false},
		{observer, sub, "#", false},
		{observer, sub, "sources/#", false},
		{observer, sub, "$SYS/broker/uptime", false},
		{observer, pub, "sources/hub1/clusters/c1/sourceevents", false},
		{observer, pub, "sources/hub1/clusters/ops/agentevents", false},
		{observer, pub, "clusters/ops/agentbroadcast", false},
		{observer, pub, "sources/ops/sourcebroadcast", false},

		{observer, sub, "sources/hub1/joinrequests", false},
		{observer, sub, "sources/hub1/joinanswers/a1", false},
		{monitor, sub, "sources/hub1/joinanswers/a1", false},

		{joiner, pub, "hubs/any-0/joinrequests", true},
		{joiner, sub, "hubs/any-0/joinanswers/" + strings.Repeat("a", 63), true},
		{joiner, sub, "hubs/any-0/joinanswers/" + strings.Repeat("a", 64), false},
		{joiner, sub, "sources/hub1/joinanswers/", false},
		{joiner, sub, "sources/hub1/joinanswers", false},
		{joiner, sub, "sources/hub1/joinanswers/a1/more", false},
		{joiner, sub, "sources/hub1/joinanswers/agentevents", true}, // an id like others
		{joiner, sub, "sources/hub1/joinanswers/A", false},
		{joiner, pub, "sources/hub1/joinrequests/more", false},
		{joiner, pub, "$share/g/sources/hub1/joinrequests", false},
		{acl.Identity{Role: acl.Joiner}, pub, "sources/hub1/joinrequests", false},

		{acl.Identity{}, sub, "sources/+/sourcebroadcast", false},
		{acl.Identity{Role: acl.Agent}, sub, "sources/+/sourcebroadcast", false},
		{acl.Identity{Role: acl.Agent, ID: "+"}, sub, "sources/+/clusters/+/sourceevents", false},
		{acl.Identity{Role: "admin", ID: "c1"}, sub, "sources/+/sourcebroadcast", false},
		{agent, "", "sources/+/sourcebroadcast", false},
		{agent, "other", "clusters/c1/agentbroadcast", false},
	} {
		if got := acl.Allow(test.id, test.action, test.topic); got != test.want {
			t.Errorf("%v, %v %q: got %v", test.id, test.action, test.topic, got)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		id   acl.Identity
		want string
	}{
		{agent, ""}, {source, ""}, {monitor, ""}, {observer, ""}, {joiner, ""},
		{acl.Identity{Role: "admin", ID: "x"}, `role "admin" is unknown`},
		{acl.Identity{Role: acl.Agent}, "must consist of"},
		{acl.Identity{Role: acl.Agent, ID: "C1"}, "must consist of"},
		{acl.Identity{Role: acl.Agent, ID: "a/b"}, "must consist of"},
		{acl.Identity{Role: acl.Agent, ID: "ä"}, "must consist of"},
	} {
		err := test.id.Validate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%v: got %v, want %q", test.id, err, test.want)
		}
	}
}

// FuzzAllow checks, with an independent computation, that an agent or a source is allowed only
// topics with its own id.
func FuzzAllow(f *testing.F) {
	for _, topic := range []string{
		"sources/+/clusters/c1/sourceevents", "$share/g/sources/hub1/clusters/c1/agentevents", "clusters/+/agentbroadcast",
		"sources/hub1/joinrequests", "sources/hub1/joinanswers/c1", "sources/+/joinanswers/+", "$share/g/sources/hub1/joinanswers/hub1",
		"sources/hub1/sourcebroadcast", "#", "$SYS/#", "a/b/c/d/sourceevents", "$share/g", "sources/+/clusters/c1/#",
	} {
		f.Add(topic, "c1", true)
		f.Add(topic, "hub1", false)
	}
	f.Fuzz(func(t *testing.T, topic, id string, isAgent bool) {
		who := acl.Identity{Role: acl.Source, ID: id}
		if isAgent {
			who.Role = acl.Agent
		}
		joining := isAgent && acltest.Joining(topic) // agents may ask any source, and read any answer whose id they know
		if acl.Allow(acl.Identity{Role: acl.Joiner, ID: "any"}, acl.Subscribe, topic) && (strings.ContainsAny(topic, "+#$") || !strings.Contains(topic, "/joinanswers/")) {
			t.Errorf("a joiner may subscribe to %q", topic)
		}
		if acl.Allow(acl.Identity{Role: acl.Joiner, ID: "any"}, acl.Publish, topic) && (strings.ContainsAny(topic, "+#$") || !strings.HasSuffix(topic, "/joinrequests")) {
			t.Errorf("a joiner may publish to %q", topic)
		}
		if acl.Allow(who, acl.Publish, topic) {
			if strings.ContainsAny(topic, "+#$") || !joining && !strings.Contains(topic, "/"+id+"/") {
				t.Errorf("%v may publish to %q", who, topic)
			}
			// Nobody publishes where another one of the same role may.
			if other := (acl.Identity{Role: who.Role, ID: id + "x"}); !joining && acl.Allow(other, acl.Publish, topic) {
				t.Errorf("%v and %v may both publish to %q", who, other, topic)
			}
			if acl.Allow(who, acl.Subscribe, topic) {
				t.Errorf("%v may publish and subscribe to %q", who, topic)
			}
		}
		if acl.Allow(who, acl.Subscribe, topic) && acltest.Joining(topic) {
			if strings.ContainsAny(topic, "+#") || !isAgent && !strings.HasSuffix(topic, "/"+id+"/joinrequests") {
				t.Errorf("%v may subscribe to %q", who, topic)
			}
		} else if acl.Allow(who, acl.Subscribe, topic) {
			_, kind := topic[:strings.LastIndex(topic, "/")], topic[strings.LastIndex(topic, "/")+1:]
			addressed := kind == "sourceevents" || kind == "agentevents"
			if strings.Contains(topic, "#") || addressed && !strings.Contains(topic, "/"+id+"/") {
				t.Errorf("%v may subscribe to %q", who, topic)
			}
			if want := map[bool]string{true: "source", false: "agent"}[isAgent]; !strings.HasPrefix(kind, want) {
				t.Errorf("%v may subscribe to %q", who, topic)
			}
		}
	})
}
