// Package symptoms produces what docs/troubleshooting.md has as headings, with a real hub, broker,
// agents and API servers, and checks that what the page quotes is what people see there.
package symptoms

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/agent"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/explain"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

var hubPlane, spokePlane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Planes{Hub: &hubPlane, Spoke: &spokePlane})
}

const (
	source wire.SourceID = "hub1"
	// packetLimit is the broker's maximum packet size in bytes.
	packetLimit = 200_000
)

// patient has one symptom. All share a hub and a broker; each has a cluster of its own. Their agents are on one API server, so
// each names its AppliedManifestWorks by a broker of its own.
type patient struct {
	*world.World
	hub *world.Hub

	section string // of the page
	i       int    // of the cluster
	cluster string
	target  string  // namespace for objects on the cluster
	log     kit.Log // of the agent
}

// open starts a broker that knows the cluster of each symptom, and the hub.
func open(t *testing.T) (*world.World, *world.Hub) {
	t.Helper()
	o := world.Options{Hub: hubPlane, Source: source}
	for i := range symptoms {
		o.Spokes, o.Clusters = append(o.Spokes, spokePlane), append(o.Clusters, wire.ClusterName(fmt.Sprint("cluster", i)))
	}
	w := world.New(t, o)
	w.Users = append(w.Users, broker.User{Username: "raw", Password: world.Password, Role: acl.Source})
	w.StartBroker(broker.Config{MaxPacketSize: packetLimit})
	return w, w.StartHub(func(c *hub.Config) { c.PendingDelay, c.HubAbsence = 100*time.Millisecond, time.Second })
}

// quoted waits until what people see has all of these words, which the section of the page must have.
func (p *patient) quoted(what string, see func() string, words ...string) {
	p.Helper()
	for _, word := range words {
		if !strings.Contains(p.section, word) {
			p.Errorf("the page does not quote %q", word)
		}
	}
	kit.Eventually(p, what+" shows "+strings.Join(words, ", "), func() error {
		text := see()
		for _, word := range words {
			if !strings.Contains(text, word) {
				return fmt.Errorf("there is no %q in\n%s", word, text)
			}
		}
		return nil
	})
}

// accept creates the ManagedCluster.
func (p *patient) accept(accepted bool) {
	p.Helper()
	_, err := p.Client().ClusterV1().ManagedClusters().Create(p.Context(), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: p.cluster}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: accepted}}, metav1.CreateOptions{})
	kit.NoError(p, err)
}

// agent starts the agent of the cluster.
func (p *patient) agent(change ...func(*agent.Config)) (stop func()) {
	p.Helper()
	return p.StartAgent(p.i, append(change, func(c *agent.Config) { c.Logger = p.log.Logger() })...).Stop
}

// work creates a work with this manifest, in which %s is the namespace for objects.
func (p *patient) work(name, manifest string, annotations ...string) {
	p.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for _, a := range annotations {
		work.Annotations[a] = "true"
	}
	work.Spec.Workload.Manifests = []workv1.Manifest{p.manifest(manifest)}
	_, err := p.Works(p.i).Create(p.Context(), work, metav1.CreateOptions{})
	kit.NoError(p, err)
}

func (p *patient) manifest(text string) workv1.Manifest {
	return workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(strings.ReplaceAll(text, "%s", p.target))}}
}

// Manifests, in which %s is the namespace for objects.
const (
	configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"%s"},"data":{"k":"1"}}`
	// unschedulable has pods that no node can run.
	unschedulable = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"%s"},` +
		`"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"nodeSelector":{"no":"node"},"containers":[{"name":"app","image":"app"}]}}}}`
)

// columns returns what kubectl get shows of a work: the API server makes the table.
func (p *patient) columns(name string) map[string]string {
	request, err := http.NewRequestWithContext(p.Context(), http.MethodGet,
		hubPlane.REST().Host+"/apis/work.open-cluster-management.io/v1/namespaces/"+p.cluster+"/manifestworks/"+name, nil)
	kit.NoError(p, err)
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	client, err := rest.HTTPClientFor(hubPlane.REST())
	kit.NoError(p, err)
	response, err := client.Do(request)
	kit.NoError(p, err)
	defer func() { _ = response.Body.Close() }() // it was read
	data, err := io.ReadAll(response.Body)
	kit.NoError(p, err)
	var table metav1.Table
	kit.NoError(p, json.Unmarshal(data, &table))
	cells := map[string]string{}
	for _, row := range table.Rows {
		for i, c := range table.ColumnDefinitions {
			if row.Cells[i] != nil {
				cells[strings.ToUpper(c.Name)] = fmt.Sprint(row.Cells[i])
			}
		}
	}
	return cells
}

// conditions returns the conditions of a work and its manifests, as kubectl describe shows them.
func (p *patient) conditions(name string) string {
	work, err := p.Works(p.i).Get(p.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	text := lines(work.Status.Conditions)
	for _, m := range work.Status.ResourceStatus.Manifests {
		text += lines(m.Conditions)
	}
	return text
}

// clusterConditions returns those of the ManagedCluster.
func (p *patient) clusterConditions() string {
	cluster, err := p.Client().ClusterV1().ManagedClusters().Get(p.Context(), p.cluster, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return lines(cluster.Status.Conditions)
}

func lines(conditions []metav1.Condition) (text string) {
	for _, c := range conditions {
		text += fmt.Sprintf("%s=%s %s %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return text
}

// explain returns what workctl explain prints about a work.
func (p *patient) explain(name string) string {
	reader, err := fleet.NewReader(hubPlane.REST())
	kit.NoError(p, err)
	facts, err := reader.Facts(p.Context(), p.cluster, name)
	if err != nil {
		return err.Error()
	}
	var out bytes.Buffer
	e := explain.Explain(facts)
	kit.NoError(p, fleet.WriteExplanation(&out, cli.Style{}, time.Now(), &e))
	return out.String()
}

// applied waits until the work is applied at its generation.
func (p *patient) applied(name string) {
	p.Helper()
	kit.Eventually(p, name+" is applied", func() error {
		cells := p.columns(name)
		if cells["APPLIED"] != "True" || cells["OBSERVED"] != cells["WANTED"] {
			return fmt.Errorf("it has %v\n%s", cells, &p.log)
		}
		return nil
	})
}
