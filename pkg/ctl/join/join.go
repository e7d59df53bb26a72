// Package join makes what a new cluster needs to join: its certificate, the transport configuration of
// its agent, what is applied on it, and its accepted ManagedCluster on the hub.
package join

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
)

// Names that the chart and the kustomize base of the agent have.
const (
	Namespace = "open-cluster-management-agent"
	Secret    = "work-agent-broker"
)

// Config says who joins, and where.
type Config struct {
	// Cluster is the name of the cluster; required.
	Cluster wire.ClusterName
	// Broker is the host:port or URL of a WebSocket at which the agent reaches the broker, or several,
	// comma-separated; required.
	Broker string
	// HubName is the hubName of the agent's transport configuration; required with several addresses.
	HubName string
	// Topics are those of the hub; required. The agent serves the source that they name.
	Topics wire.Topics
	// List is the path of the list of certificates; required.
	List string
}

// Validate returns every fault of c.
func (c Config) Validate() error {
	var errs []error
	for address := range strings.SplitSeq(c.Broker, ",") {
		_, err := config.ParseAddress(strings.TrimSpace(address))
		errs = append(errs, err)
	}
	if c.HubName == "" && strings.Contains(c.Broker, ",") {
		errs = append(errs, errors.New("hubName: required with several addresses of the broker: add it to the transport configuration of --transport (docs/brokers.md, Several addresses)"))
	}
	if _, err := c.Topics.ForAgent(c.Cluster); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Certificate adds the cluster to the list of certificates, unless it is there, and issues its
// certificate, unless it is valid. added reports whether the list was changed.
func (c Config) Certificate() (manager *certificates.Manager, added bool, err error) {
	text, err := os.ReadFile(c.List)
	if err != nil {
		return nil, false, err
	}
	config, err := certificates.Parse(text)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", c.List, err)
	}
	listed := find(config, c.Cluster)
	if listed == nil {
		if text, config, err = appended(text, config, c.Cluster); err != nil {
			return nil, false, fmt.Errorf("%s: %w", c.List, err)
		}
		if err := rewrite(c.List, text); err != nil {
			return nil, false, err
		}
		added = true
	} else if listed.Role != certificates.Agent {
		return nil, false, fmt.Errorf("%s: %s has the role %s: choose another name for the cluster", c.List, c.Cluster, listed.Role)
	}
	manager, err = certificates.New(certificates.ManagerConfig{Config: config, Dir: filepath.Dir(c.List)})
	if err == nil {
		_, err = manager.Ensure()
	}
	return manager, added, err
}

func find(config certificates.Config, cluster wire.ClusterName) *certificates.Certificate {
	for i := range config.Certificates {
		if config.Certificates[i].Name == string(cluster) {
			return &config.Certificates[i]
		}
	}
	return nil
}

// appended returns the list with an entry more, with all comments. It returns an error if the
// list does not end with its certificates, as a text to append to must.
func appended(text []byte, before certificates.Config, cluster wire.ClusterName) ([]byte, certificates.Config, error) {
	entry := fmt.Sprintf("{name: %s, role: agent}", cluster)
	indent := ""
	for line := range bytes.Lines(text) {
		if trimmed := bytes.TrimLeft(line, " "); bytes.HasPrefix(trimmed, []byte("- ")) {
			indent = strings.Repeat(" ", len(line)-len(trimmed))
		}
	}
	longer := append(bytes.TrimRight(bytes.Clone(text), " \n"), []byte("\n"+indent+"- "+entry+"\n")...)
	after, err := certificates.Parse(longer)
	if err != nil || len(after.Certificates) != len(before.Certificates)+1 || find(after, cluster) == nil {
		return nil, before, fmt.Errorf("cannot add to this list; add the certificate yourself, and run the command again:\n- %s", entry)
	}
	return longer, after, nil
}

// rewrite replaces a file, atomically and with its mode.
func rewrite(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// Manifests returns the namespace of the agent and the Secret with its certificate, for kubectl apply
// on the cluster.
func (c Config) Manifests(manager *certificates.Manager) ([]byte, error) {
	secret, err := manager.Secret(string(c.Cluster), Namespace, Secret)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n---\n%s", Namespace, secret), nil
}

// Values returns the values of the Helm chart for the agent.
func (c Config) Values() ([]byte, error) {
	topics, _ := c.Topics.ForAgent(c.Cluster) // validated
	source, one := topics.Source()
	if !one {
		return nil, errors.New("the topics name no source, as those of a hub do")
	}
	values := map[string]any{
		"brokerHost": c.Broker, "sourceID": source, "agent": map[string]any{"enabled": true, "clusterName": c.Cluster, "brokerSecret": Secret},
	}
	if c.HubName != "" {
		values["transport"] = map[string]any{"hubName": c.HubName}
	}
	return yaml.Marshal(values)
}

// Transport returns the agent's transport configuration with its certificate and key in it, for an
// agent outside of a cluster.
func (c Config) Transport(manager *certificates.Manager) ([]byte, error) {
	text, err := manager.Secret(string(c.Cluster), Namespace, Secret)
	if err != nil {
		return nil, err
	}
	var secret struct {
		Data map[string][]byte `json:"data"`
	}
	if err := yaml.Unmarshal(text, &secret); err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", c.Cluster, err)
	}
	transport := map[string]any{
		"brokerHost": c.Broker, "tls": "required", "topics": c.Topics, "caData": encoded(secret.Data["ca.crt"]),
		"clientCertData": encoded(secret.Data["tls.crt"]), "clientKeyData": encoded(secret.Data["tls.key"]),
	}
	if c.HubName != "" {
		transport["hubName"] = c.HubName
	}
	return yaml.Marshal(transport)
}

func encoded(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// Accept creates the ManagedCluster, accepted, or accepts the one that is there. The hub then makes
// its namespace and sends it its works.
func Accept(ctx context.Context, clients versioned.Interface, cluster wire.ClusterName) error {
	client := clients.ClusterV1().ManagedClusters()
	_, err := client.Create(ctx, &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: string(cluster)}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = client.Patch(ctx, string(cluster), types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":true}}`), metav1.PatchOptions{})
	return err
}
