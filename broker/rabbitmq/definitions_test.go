package rabbitmq

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/acltest"
)

// routingKey is how RabbitMQ writes a topic or a filter.
func routingKey(topic string) string { return strings.NewReplacer("/", ".", "+", "*").Replace(topic) }

// TestAttempts evaluates the rules with the attempts that TestAccess in package broker makes with a
// real RabbitMQ.
func TestAttempts(t *testing.T) {
	var users []broker.User
	name := func(id acl.Identity) string {
		if id.Role == acl.Source {
			return "source." + id.ID
		}
		return id.ID
	}
	for _, id := range append(acltest.Identities(), acltest.Joiner, acltest.Observer) {
		users = append(users, broker.User{Username: name(id), Role: id.Role, ID: id.ID})
	}
	text, err := Definitions(users)
	kit.NoError(t, err)
	var d definitions
	kit.NoError(t, json.Unmarshal(text, &d))
	tried := 0
	for _, a := range acltest.Attempts() {
		if _, shared := acltest.TrimShare(a.Topic); a.Who.Role == acl.Monitor || shared && a.Allowed {
			continue // RabbitMQ has neither
		}
		for _, p := range d.TopicPermissions {
			if p.User != name(a.Who) {
				continue
			}
			tried++
			expression := p.Read
			if a.Action == acl.Publish {
				expression = p.Write
			}
			if got := regexp.MustCompile(expression).MatchString(routingKey(a.Topic)); got != a.Allowed {
				t.Errorf("%v: got %v, want %v", a, got, a.Allowed)
			}
		}
	}
	if tried < 300 {
		t.Errorf("only %d attempts", tried)
	}
}

// TestSessions: nobody may use the queue of a session of another user, and each those of workctl.
func TestSessions(t *testing.T) {
	var d definitions
	text, err := Definitions([]broker.User{
		{Username: "c1", Role: acl.Agent}, {Username: "c1-x", Role: acl.Agent}, {Username: "hub1", Role: acl.Agent}, {Username: "source", Role: acl.Agent},
		{Username: "workctl", Role: acl.Agent}, {Username: "join", Role: acl.Joiner}, {Username: "source.hub1", ID: "hub1", Role: acl.Source}, {Username: "watcher", Role: acl.Observer},
	})
	kit.NoError(t, err)
	kit.NoError(t, json.Unmarshal(text, &d))
	owners := map[string]string{
		"mqtt-subscription-c1-agentqos1": "c1", "mqtt-subscription-c1-clientqos0": "c1", "mqtt-will-c1-agent": "c1", "mqtt-subscription-c1/anyqos1": "c1",
		"mqtt-subscription-c1-x-agentqos1": "c1-x", "mqtt-subscription-hub1-agentqos1": "hub1", "mqtt-subscription-hub1-hubqos1": "source.hub1",
		"mqtt-subscription-hub1-hub-joinsqos1": "source.hub1", "mqtt-subscription-hub1-hub-1a2b3c4d-joinsqos1": "source.hub1", "mqtt-subscription-hub1-hub-1a2b3c4dqos1": "source.hub1",
		"mqtt-subscription-workctl-agentqos1": "workctl", "mqtt-subscription-workctl-clientqos1": "workctl",
		"mqtt-subscription-source.hub1/xqos1": "source.hub1", "mqtt-subscription-source/hub1qos1": "source", "mqtt-subscription-watcher/tailqos0": "watcher", "mqtt-subscription-join/x1qos1": "join",
		"mqtt-subscription-c1-otherqos1": "", "amq.gen": "", "mqtt-subscription-c1": "",
		"mqtt-subscription-workctl-" + uuid.NewString() + "qos0": "each",
	}
	for queue, owner := range owners {
		for _, p := range d.Permissions {
			for _, expression := range []string{p.Configure, p.Write, p.Read} {
				if got := regexp.MustCompile(expression).MatchString(queue); got != (p.User == owner || owner == "each") {
					t.Errorf("%s at the queue %s: %v, by %s", p.User, queue, got, expression)
				}
			}
		}
	}
}

// TestJoinAnswers: an agent reads those to requests, and to its cluster, and not what is for the broker.
func TestJoinAnswers(t *testing.T) {
	r, err := rulesOf(acl.Identity{Role: acl.Agent, ID: "c-1"}, "c-1")
	kit.NoError(t, err)
	for id, want := range map[string]bool{"0123456789abcdef0123456789abcdef": true, "c-1": true, "c-2": false, "-": false, "+": false} {
		if got := regexp.MustCompile(r.read).MatchString(routingKey("sources/hub1/joinanswers/" + id)); got != want {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}

func TestDefinitionsRefuse(t *testing.T) {
	for _, u := range []broker.User{
		{Username: "c1", ID: "c2", Role: acl.Agent}, {Username: "watch", Role: acl.Monitor}, {Username: "C+1", Role: acl.Agent}, {Username: "x"},
	} {
		if text, err := Definitions([]broker.User{u}); err == nil {
			t.Errorf("%+v: %s", u, text)
		}
	}
}

// TestPasswordHash: as RabbitMQ's documentation computes it: a salt of 4 bytes, and the SHA-256 of salt
// and password.
func TestPasswordHash(t *testing.T) {
	one, other := passwordHash("c1", "secret"), passwordHash("c2", "secret")
	if one == other || one == passwordHash("c1", "other") || one != passwordHash("c1", "secret") || passwordHash("c1", "") != "" || len(one) != 48 {
		t.Errorf("got %q and %q", one, other)
	}
}
