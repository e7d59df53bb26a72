package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/sourcetest"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: default}\ndata: {colour: %s}\n"

// TestController: over a real broker, the ConfigMap is on the clusters that match, follows the files,
// and stays where a file is broken or too much would go.
func TestController(t *testing.T) {
	users := []broker.User{{Username: "ops", Password: "secret", Role: acl.Source}}
	clusters := []string{"cluster1", "cluster2", "cluster3"}
	for _, cluster := range clusters {
		users = append(users, broker.User{Username: cluster, Password: "secret", Role: acl.Agent})
	}
	running, topics := brokertest.Start(t, broker.Config{Users: users}), sourcetest.Topics("ops")
	agents := map[string]*sourcetest.Agent{}
	for _, cluster := range clusters {
		connection, err := mqtt.New(mqtt.Config{ClientID: cluster + "-agent", Logger: kit.Logger(t),
			Broker: config.Config{BrokerHost: running.Addr, Username: cluster, Password: "secret", Topics: topics}})
		kit.NoError(t, err)
		agents[cluster], err = sourcetest.NewAgent(sourcetest.AgentConfig{
			Cluster: wire.ClusterName(cluster), Source: "ops", Topics: topics, Transport: connection,
		})
		kit.NoError(t, err)
		kit.Run(t, "agent of "+cluster, agents[cluster].Run)
	}
	dir := t.TempDir()
	write := func(name, text string) string { // at once, as an operator does with mv
		path := filepath.Join(dir, name)
		kit.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
		kit.NoError(t, os.Rename(path+".new", path))
		return path
	}
	o, err := parse([]string{"--source-id=ops", "--interval=10ms", "--selector=stage=prod", "--max-deletions=1", "--state=" + filepath.Join(dir, "ops.db"),
		"--clusters=" + write("clusters.yaml", "cluster1: {stage: prod}\ncluster2: {stage: test}\ncluster3: {stage: prod}\n"),
		"--config-map=" + write("configmap.yaml", fmt.Sprintf(configMap, "blue")),
		"--transport-config=" + write("ops.yaml", fmt.Sprintf("brokerHost: %s\nusername: ops\npassword: secret\ntopics: {sourceEvents: %s, agentEvents: %s}\n",
			running.Addr, topics.SourceEvents, topics.AgentEvents)),
	}, io.Discard)
	kit.NoError(t, err)
	log := &kit.Log{}
	kit.Run(t, "controller", func(ctx context.Context) error { return run(ctx, o, log.Logger()) })
	holds := func(want string) {
		t.Helper()
		kit.Eventually(t, "the clusters have "+want, func() error {
			var got []string
			for _, cluster := range clusters {
				if work := agents[cluster].Work("configmap-settings"); work != nil {
					_, colour, _ := strings.Cut(string(work.Spec.Workload.Manifests[0].Raw), `"colour":"`)
					colour, _, _ = strings.Cut(colour, `"`)
					got = append(got, cluster+"="+colour)
				}
			}
			if strings.Join(got, " ") != want {
				return fmt.Errorf("they have %q", got)
			}
			return nil
		})
	}
	says := func(text string) {
		t.Helper()
		kit.True(t, "the log says "+text, func() bool { return strings.Contains(log.String(), text) })
	}
	holds("cluster1=blue cluster3=blue")
	write("configmap.yaml", fmt.Sprintf(configMap, "green"))
	holds("cluster1=green cluster3=green")
	write("clusters.yaml", "cluster1: {stage: prod}\ncluster2: {stage: prod}\ncluster3: {stage: test}\n")
	holds("cluster1=green cluster2=green")
	write("clusters.yaml", "")
	says("it has no clusters: nothing is changed")
	write("clusters.yaml", "cluster9: {stage: test}\n")
	says("2 clusters would lose the ConfigMap, more than --max-deletions=1: nothing is deleted")
	holds("cluster1=green cluster2=green")
	write("clusters.yaml", "cluster1: {stage: prod}\ncluster3: {stage: prod}\n")
	holds("cluster1=green cluster3=green")
}

func TestPlan(t *testing.T) {
	want, err := workOf(fmt.Appendf(nil, configMap, "blue"))
	kit.NoError(t, err)
	at := func(cluster, name, colour string) workv1.ManifestWork {
		work, err := workOf(fmt.Appendf(nil, configMap, colour))
		kit.NoError(t, err)
		work.Namespace, work.Name = cluster, name
		return *work
	}
	clusters := map[string]labels.Set{"a": {"stage": "prod"}, "b": {"stage": "test"}, "c": {"stage": "prod"}}
	selector, err := labels.Parse("stage=prod")
	kit.NoError(t, err)
	for name, c := range map[string]struct {
		works                  []workv1.ManifestWork
		create, update, remove string
	}{
		"nothing there":   {create: "[a c]"},
		"as it should be": {works: []workv1.ManifestWork{at("a", want.Name, "blue"), at("c", want.Name, "blue")}},
		"another colour":  {works: []workv1.ManifestWork{at("a", want.Name, "red"), at("c", want.Name, "blue")}, update: "[a]"},
		"another label":   {works: []workv1.ManifestWork{at("a", want.Name, "blue"), at("b", want.Name, "blue"), at("c", want.Name, "blue")}, remove: "[b]"},
		"unknown cluster": {works: []workv1.ManifestWork{at("a", want.Name, "blue"), at("c", want.Name, "blue"), at("d", want.Name, "red")}, remove: "[d]"},
		"an earlier name": {works: []workv1.ManifestWork{at("a", "configmap-old", "blue"), at("c", want.Name, "blue")}, create: "[a]", remove: "[a]"},
	} {
		p := planOf(clusters, selector, want, c.works)
		namespaces := func(works []workv1.ManifestWork) (names []string) {
			for _, work := range works {
				names = append(names, work.Namespace)
			}
			return names
		}
		for what, pair := range map[string][2]string{
			"creates": {fmt.Sprint(p.create), c.create}, "updates": {fmt.Sprint(namespaces(p.update)), c.update}, "removes": {fmt.Sprint(namespaces(p.remove)), c.remove},
		} {
			if pair[1] == "" {
				pair[1] = "[]"
			}
			if pair[0] != pair[1] {
				t.Errorf("%s: %s %s, want %s", name, what, pair[0], pair[1])
			}
		}
	}
}

func TestOptions(t *testing.T) {
	for _, args := range [][]string{nil, {"--transport-config=t", "--source-id=s", "--selector=="}, {"--transport-config=t", "--source-id=s", "--interval=0s"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	var help strings.Builder
	if _, _ = parse([]string{"--help"}, &help); !strings.Contains(help.String(), "max-deletions") {
		t.Errorf("--help prints %s", &help)
	}
}

// FuzzFiles: no text makes a file of no clusters, or a work without a ConfigMap.
func FuzzFiles(f *testing.F) {
	f.Add([]byte("cluster1: {stage: prod}\n"))
	f.Add([]byte(fmt.Sprintf(configMap, "blue")))
	f.Add([]byte("{}"))
	f.Add([]byte("cluster1:\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if clusters, err := parseClusters(text); err == nil && len(clusters) == 0 {
			t.Error("no clusters")
		}
		if work, err := workOf(text); err == nil && !strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), "ConfigMap") {
			t.Error("no ConfigMap")
		}
	})
}
