package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestPage checks that docs/workctl.md names every command and every flag. certs and keys have pages
// of their own.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/workctl.md")
	kit.NoError(t, err)
	page := string(data)
	root := newCommand("workctl", cli.Streams{})
	flags := func(path string, set *pflag.FlagSet) {
		set.VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(page, "`--"+f.Name) {
				t.Errorf("docs/workctl.md does not name the flag --%s of %s", f.Name, path)
			}
		})
	}
	flags("workctl", root.PersistentFlags())
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if name := sub.Name(); name == "certs" || name == "keys" || name == "help" {
				continue
			}
			if !sub.HasSubCommands() && !strings.Contains(page, "`"+sub.CommandPath()) {
				t.Errorf("docs/workctl.md does not name `%s`", sub.CommandPath())
			}
			flags(sub.CommandPath(), sub.LocalNonPersistentFlags())
			visit(sub)
		}
	}
	visit(root)
}

// TestExamples checks that each command line in the help names a command and flags that exist.
func TestExamples(t *testing.T) {
	root := newCommand("workctl", cli.Streams{})
	root.InitDefaultCompletionCmd()
	found := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(line, " > ")
			line, _, _ = strings.Cut(line, " | ")
			words := strings.Fields(strings.ReplaceAll(line, "'", ""))
			if len(words) == 0 || words[0] != "workctl" {
				continue
			}
			found++
			named, args, err := root.Find(words[1:])
			if err == nil && named == root {
				err = errors.New("it names no command")
			}
			if err == nil {
				err = named.ParseFlags(args)
			}
			if err != nil {
				t.Errorf("%s: example %s: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	if found < 20 {
		t.Errorf("%d examples are found", found)
	}
}

// TestSourceGetsOntoABroker does what docs/sdk.md says, up to the answer of an agent.
func TestSourceGetsOntoABroker(t *testing.T) {
	data, err := os.ReadFile("../../docs/sdk.md")
	kit.NoError(t, err)
	_, section, _ := strings.Cut(string(data), "\n## Get onto a broker\n")
	section, _, _ = strings.Cut(section, "\n## ")
	files := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(section, -1)
	commands := regexp.MustCompile(`(?m)^    workctl (.*)$`).FindAllStringSubmatch(section, -1)
	if len(files) != 2 || len(commands) != 2 {
		t.Fatalf("the section has %d files and %d commands of workctl: are the patterns right?", len(files), len(commands))
	}
	t.Chdir(t.TempDir())
	kit.NoError(t, os.WriteFile("certificates.yaml", []byte(files[0][1]), 0o600))
	if out, err := run(t.Context(), t, strings.Fields(commands[0][1])...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := brokertest.Start(t, broker.Config{Listeners: []broker.Listener{{Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{
		CertFile: "broker/tls.crt", KeyFile: "broker/tls.key", ClientCAFile: "broker/ca.crt", RequireClientCert: true,
	}}}})
	transport := strings.Replace(files[1][1], "broker.example.com:8883", b.Addr, 1)
	kit.NoError(t, os.WriteFile("ops.yaml", []byte(transport), 0o600))
	ofAgent, err := config.Parse([]byte(strings.ReplaceAll(transport, " ops/", " cluster1/")))
	kit.NoError(t, err)
	connection, err := mqtt.New(mqtt.Config{Broker: ofAgent, ClientID: "cluster1", Logger: kit.Logger(t)})
	kit.NoError(t, err)
	agent := wirekit.Connect(t, connection, "sources/+/clusters/cluster1/sourceevents")
	examined := make(chan string, 1)
	go func() {
		out, err := run(context.WithoutCancel(t.Context()), t, strings.Fields(commands[1][1])...)
		t.Log(out)
		examined <- fmt.Sprint(out, err)
	}()
	wirekit.Next(t, agent, "the question", func(r *wire.StatusResync) bool { return r.Cluster == "cluster1" })
	agent.Publish(t, "sources/ops/clusters/cluster1/agentevents", &wire.Presence{Agent: "agent", Cluster: "cluster1", Source: "ops", Session: "s", Present: true}, nil)
	if out := kit.Receive(t, "the verdicts", examined); !strings.HasSuffix(out, "<nil>") || !regexp.MustCompile(`(?m)^ok +agent `).MatchString(out) {
		t.Error(out)
	}
}
