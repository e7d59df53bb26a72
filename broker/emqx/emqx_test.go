// Package emqx tests the rules for EMQX in this directory, without EMQX.
package emqx

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/acltest"
)

//go:embed acl.conf
var aclFile string

// rule is one line of acl.conf: {allow|deny, Who, publish|subscribe|all, [Topics]}.
type rule struct {
	allow    bool
	who      func(username string) bool
	action   acl.Action // "": all
	topics   []string
	anything bool // {deny, all} and {allow, all}
}

// The forms of a rule that acl.conf uses. Any other form fails the test.
var (
	catchAll  = regexp.MustCompile(`^\{(allow|deny), all\}\.$`)
	full      = regexp.MustCompile(`^\{(allow|deny), \{username, (\{re, )?"([^"]*)"\}?\}, (publish|subscribe|all), \[(.*)\]\}\.$`)
	topicList = regexp.MustCompile(`^"[^"]*"(, "[^"]*")*$`)
)

func parse(text string) ([]rule, error) {
	var rules []rule
	for n, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "%%") {
			continue
		}
		if m := catchAll.FindStringSubmatch(line); m != nil {
			rules = append(rules, rule{allow: m[1] == "allow", anything: true})
			continue
		}
		m := full.FindStringSubmatch(line)
		if m == nil || !topicList.MatchString(m[5]) {
			return nil, fmt.Errorf("line %d is no rule of a known form: %s", n+1, line)
		}
		r := rule{allow: m[1] == "allow", action: map[string]acl.Action{"publish": acl.Publish, "subscribe": acl.Subscribe}[m[4]]}
		r.who = func(username string) bool { return username == m[3] }
		if m[2] != "" {
			pattern, err := regexp.Compile(m[3])
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			r.who = pattern.MatchString
		}
		for _, topic := range strings.Split(m[5], ", ") {
			r.topics = append(r.topics, strings.Trim(topic, `"`))
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// decide implements EMQX's documentation: the first matching rule decides, ${username} is replaced,
// and the filter of a subscription is compared by level, without its $share. The configuration
// denies requests that no rule matches.
func decide(rules []rule, username string, action acl.Action, topic string) bool {
	topic, _ = acltest.TrimShare(topic)
	for _, r := range rules {
		if r.anything {
			return r.allow
		}
		if r.action != "" && r.action != action || !r.who(username) {
			continue
		}
		for _, filter := range r.topics {
			if acltest.Matches(strings.ReplaceAll(filter, "${username}", username), topic) {
				return r.allow
			}
		}
	}
	return false
}

// withSource adds the rules of another source to the example, as README.md describes.
func withSource(text, id string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		out = append(out, line)
		if strings.Contains(line, `"source.hub1"`) {
			out = append(out, strings.ReplaceAll(line, "hub1", id))
		}
	}
	return strings.Join(out, "\n")
}

// TestAttempts checks acl.conf with the attempts of the real brokers.
func TestAttempts(t *testing.T) {
	rules, err := parse(withSource(aclFile, acltest.OtherHub.ID))
	kit.NoError(t, err)
	tried := 0
	for _, a := range acltest.Attempts() {
		username := a.Who.ID
		switch a.Who.Role {
		case acl.Source:
			username = "source." + a.Who.ID
		case acl.Monitor, acl.Observer:
			continue // acl.conf has none
		case acl.Joiner:
			username = "joiner." + a.Who.ID // which no rule allows anything
		}
		if a.Allowed && acltest.Joining(a.Topic) {
			a.Allowed = false // docs/brokers.md says why
		}
		tried++
		if got := decide(rules, username, a.Action, a.Topic); got != a.Allowed {
			t.Errorf("%v: got %v, want %v", a, got, a.Allowed)
		}
	}
	if tried < 300 {
		t.Errorf("only %d attempts", tried)
	}
	for _, username := range []string{"", "c1/x", "+", "#", "c+", "source.hub3", "source.", "C1"} {
		for _, a := range acltest.Attempts() {
			if decide(rules, username, a.Action, a.Topic) {
				t.Errorf("user %q may %v %s", username, a.Action, a.Topic)
			}
		}
	}
}

// TestParse checks that the parser refuses unknown forms, so that every rule is tested.
func TestParse(t *testing.T) {
	for _, line := range []string{
		`{allow, all, subscribe, ["#"]}.`, `{allow, {username, "x"}, subscribe, [{eq, "#"}]}.`, `{allow, {username, "x"}, subscribe, ["a"]}`, `allow all`,
		`{allow, {clientid, "x"}, publish, ["a"]}.`, `{allow, {username, "x"}, publish, ["a" "b"]}.`,
	} {
		if rules, err := parse(line); err == nil {
			t.Errorf("%s: %+v", line, rules)
		}
	}
}
