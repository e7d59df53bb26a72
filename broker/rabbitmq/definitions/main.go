// Command definitions prints RabbitMQ's definitions.json for clients with certificates:
//
//	go run ./broker/rabbitmq/definitions source.hub1 cluster1 cluster2 >definitions.json
//
// Each argument is the common name of a certificate: source.ID for a source, otherwise the cluster of
// an agent; joiner.ID is the user of clusters that join. NAME=source.ID is a source whose common name is NAME, which no cluster may have then.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/rabbitmq"
)

func main() {
	if len(os.Args) == 1 {
		fmt.Fprintln(os.Stderr, "usage: definitions source.ID|joiner.ID|NAME=source.ID|CLUSTER...")
		os.Exit(2)
	}
	text, err := rabbitmq.Definitions(users(os.Args[1:]))
	if err != nil {
		fmt.Fprintln(os.Stderr, "definitions:", err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(text)
}

func users(names []string) []broker.User {
	var users []broker.User
	for _, name := range names {
		username, identity, renamed := strings.Cut(name, "=")
		if !renamed {
			identity = name
		}
		u := broker.User{Username: username, Role: acl.Agent, ID: identity}
		if id, isSource := strings.CutPrefix(identity, "source."); isSource {
			u.Role, u.ID = acl.Source, id
		}
		if id, isJoiner := strings.CutPrefix(identity, "joiner."); isJoiner {
			u.Role, u.ID = acl.Joiner, id
		}
		users = append(users, u)
	}
	return users
}
