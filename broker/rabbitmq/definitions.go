package rabbitmq

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
)

// definitions are those of RabbitMQ that this package uses, in the form of definitions.json.
type definitions struct {
	Users            []user            `json:"users"`
	Vhosts           []vhost           `json:"vhosts"`
	Permissions      []permission      `json:"permissions"`
	TopicPermissions []topicPermission `json:"topic_permissions"`
	Policies         []policy          `json:"policies"`
}

type user struct {
	Name string `json:"name"`
	// PasswordHash is empty for a user who has a certificate: no password logs them in.
	PasswordHash     string         `json:"password_hash"`
	HashingAlgorithm string         `json:"hashing_algorithm"`
	Tags             []string       `json:"tags"`
	Limits           map[string]int `json:"limits"`
}

type vhost struct {
	Name string `json:"name"`
}

type permission struct {
	User      string `json:"user"`
	Vhost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

type topicPermission struct {
	User     string `json:"user"`
	Vhost    string `json:"vhost"`
	Exchange string `json:"exchange"`
	Write    string `json:"write"`
	Read     string `json:"read"`
}

type policy struct {
	Vhost      string         `json:"vhost"`
	Name       string         `json:"name"`
	Pattern    string         `json:"pattern"`
	ApplyTo    string         `json:"apply-to"`
	Definition map[string]any `json:"definition"`
	Priority   int            `json:"priority"`
}

// Limits of each user and of each session.
const (
	maxConnections   = 100
	maxQueueMessages = 100_000
	maxQueueBytes    = 512 << 20
)

// randomIDs matches client ids that anybody may have, since nobody else knows them: of workctl, where a UUID follows, so that the agent of a
// cluster "workctl" has none of them; and of a request to join, its id.
const randomIDs = "workctl-[0-9a-f-]{36}|[0-9a-f]{32}"

// Definitions returns the content of definitions.json for users: what each of them may do, and the
// limits. A user without a password logs in with a certificate, whose common name is the user name.
// The rules are those of package acl. As with Mosquitto, the user name of an agent is its cluster,
// and a source should have one that is no cluster's, such as source.hub1.
func Definitions(users []broker.User) ([]byte, error) {
	d := definitions{Vhosts: []vhost{{"/"}}, Policies: []policy{{
		Vhost: "/", Name: "sessions", Pattern: "^mqtt-subscription-", ApplyTo: "queues",
		Definition: map[string]any{"max-length": maxQueueMessages, "max-length-bytes": maxQueueBytes, "overflow": "reject-publish"},
	}}}
	for _, u := range users {
		id := u.Identity()
		if err := id.Validate(); err != nil {
			return nil, fmt.Errorf("user %s: %w", u.Username, err)
		}
		r, err := rulesOf(id, u.Username)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", u.Username, err)
		}
		d.Users = append(d.Users, user{
			Name: u.Username, PasswordHash: passwordHash(u.Username, u.Password), HashingAlgorithm: "rabbit_password_hashing_sha256",
			Tags: []string{}, Limits: map[string]int{"max-connections": maxConnections},
		})
		queues := "^mqtt-(subscription|will)-(" + r.clientIDs + "|" + randomIDs + ")(qos[01])?$"
		d.Permissions = append(d.Permissions, permission{
			User: u.Username, Vhost: "/", Configure: queues, Write: queues + `|^amq\.topic$`, Read: queues + `|^amq\.topic$`,
		})
		d.TopicPermissions = append(d.TopicPermissions, topicPermission{
			User: u.Username, Vhost: "/", Exchange: "amq.topic", Write: r.write, Read: r.read,
		})
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// rules are regular expressions: of the client ids, and of the routing keys that a user may publish
// to and subscribe to. RabbitMQ writes a topic as a routing key with dots for slashes and stars for
// plus signs, and asks whether the filter of a subscription matches read: a filter that is too
// wide has a star where the expression has a name.
type rules struct{ clientIDs, write, read string }

func rulesOf(id acl.Identity, username string) (rules, error) {
	const name = "[a-z0-9-]+"   // of a cluster or a source
	const request = "[a-z0-9]+" // the id of one to join; "-" has what the broker alone reads
	self, own := regexp.QuoteMeta(id.ID), regexp.QuoteMeta(username)+"/.*"
	switch id.Role {
	case acl.Agent:
		if id.ID != username {
			return rules{}, fmt.Errorf("the id %s of an agent must equal the user name", id.ID)
		}
		return rules{
			clientIDs: self + "-agent|" + self + "-client|" + own,
			write:     `^(sources\.` + name + `\.clusters\.` + self + `\.agentevents|clusters\.` + self + `\.agentbroadcast|sources\.` + name + `\.joinrequests)$`,
			read:      `^(sources\.(` + name + `|\*)\.clusters\.` + self + `\.sourceevents|sources\.(` + name + `|\*)\.sourcebroadcast|sources\.` + name + `\.joinanswers\.(` + request + `|` + self + `))$`,
		}, nil
	case acl.Source:
		return rules{
			clientIDs: self + "-hub(-[0-9a-f]{8})?(-joins)?|" + own,
			write:     `^sources\.` + self + `\.(clusters\.` + name + `\.sourceevents|sourcebroadcast|joinanswers\.` + name + `)$`,
			read:      `^(sources\.` + self + `\.clusters\.(` + name + `|\*)\.agentevents|clusters\.(` + name + `|\*)\.agentbroadcast|sources\.` + self + `\.clusters\.-\.sourceevents|sources\.` + self + `\.joinrequests)$`,
		}, nil
	case acl.Joiner:
		return rules{
			clientIDs: own,
			write:     `^sources\.` + name + `\.joinrequests$`,
			read:      `^sources\.` + name + `\.joinanswers\.` + request + `$`,
		}, nil
	case acl.Observer:
		each := `(` + name + `|\*)`
		return rules{
			clientIDs: own,
			write:     "^$",
			read: `^(sources\.` + each + `\.clusters\.` + each + `\.(sourceevents|agentevents)|sources\.` + each +
				`\.sourcebroadcast|clusters\.` + each + `\.agentbroadcast)$`,
		}, nil
	}
	return rules{}, fmt.Errorf("the role %s is not supported", id.Role)
}

// passwordHash returns RabbitMQ's salted SHA-256 of password, empty for none. The salt comes from the user
// name, so that the file does not change when it is made again.
func passwordHash(username, password string) string {
	if password == "" {
		return ""
	}
	seed := sha256.Sum256([]byte(username))
	salt := binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(seed[:]))
	hash := sha256.Sum256(append(append([]byte(nil), salt...), password...))
	return base64.StdEncoding.EncodeToString(append(salt, hash[:]...))
}
