package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/test/kit"
)

// TestTokens makes a token, prints what is applied on a cluster that has it, and ends it.
func TestTokens(t *testing.T) {
	dir, cluster := t.TempDir(), kit.Unique("joins")
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		kit.NoError(t, os.WriteFile(in(name), []byte(text), 0o600))
	}
	write("list.yaml", "certificates:\n- {name: hub1, role: source}\n")
	write("password", "public\n")
	workctl := func(args ...string) (string, error) {
		t.Helper()
		return run(t.Context(), t, append(args, "--kubeconfig="+plane.Kubeconfig)...)
	}
	// The newest Lease of a hub says where it looks for tokens, here of one of several.
	hub := plane.Namespace(t, "hub")
	for lease, of := range map[string]struct {
		namespace string
		renewed   time.Time
	}{
		clusterv1.HubPresenceLeaseName:                       {plane.Namespace(t, "former-hub"), time.Now().Add(-time.Hour)},
		clusterv1.HubPresenceLease("work-hub-hub1-0a1b2c3d"): {hub, time.Now()},
	} {
		leases := kubernetes.NewForConfigOrDie(plane.REST()).CoordinationV1().Leases(of.namespace)
		_, err := leases.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: lease}, Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(of.renewed))},
		}, metav1.CreateOptions{})
		kit.NoError(t, err)
		t.Cleanup(func() { kit.NoError(t, leases.Delete(context.Background(), lease, metav1.DeleteOptions{})) })
	}
	_, err := run(t.Context(), t, "certs", "ensure", "--config="+in("list.yaml"))
	kit.NoError(t, err)
	write("hub1.yaml", fmt.Sprintf("brokerHost: broker.example.com:8883\ncaFile: %s\n"+
		"topics: {sourceEvents: sources/hub1/clusters/+/sourceevents, agentEvents: sources/hub1/clusters/+/agentevents}\n", in("hub1/ca.crt")))
	made, err := workctl("token", "create", cluster, "--every-source", "--broker=wss://edge.example.com/mqtt", "--transport="+in("hub1.yaml"), "--password-file="+in("password"))
	kit.NoError(t, err)
	for line := range strings.Lines(made) { // the others are for people, on stderr
		if strings.HasPrefix(line, "workwire-join-") {
			made = strings.TrimSpace(line)
		}
	}
	token, err := enrolment.ParseToken(made)
	if err != nil || token.Broker != "wss://edge.example.com/mqtt" || token.HubName != "broker.example.com:8883" || token.Password != "public" ||
		token.Topics.SourceEvents != "sources/+/clusters/+/sourceevents" || token.Source != "hub1" {
		t.Errorf("%v: %+v", err, token)
	}
	if list, err := workctl("token", "list"); err != nil || !strings.Contains(list, token.ID()) || !strings.Contains(list, cluster) {
		t.Errorf("%v: the list has no %s:\n%s", err, token.ID(), list)
	}

	manifests, err := run(t.Context(), t, "join", cluster, "--token="+made)
	kit.NoError(t, err)
	manifests, _, _ = strings.Cut(manifests, "next: ") // on stderr
	namespace, secret, _ := strings.Cut(manifests, "---\n")
	var s corev1.Secret
	kit.NoError(t, yaml.Unmarshal([]byte(secret), &s))
	if !strings.Contains(namespace, "kind: Namespace") || s.Name != "work-agent-join" || s.Namespace != "open-cluster-management-agent" || s.StringData["token"]+string(s.Data["token"]) != made {
		t.Errorf("applied is\n%s", manifests)
	}
	for want, args := range map[string][]string{
		"--token is required":     {cluster},
		"accepts 1 arg(s)":        {"--token=" + made},
		"this is no token":        {cluster, "--token=hunter2"},
		"damaged":                 {cluster, "--token=" + made[:100]},
		"the token has been used": {cluster, "--token=" + token.Joined().String()},
		"only a-z, 0-9 and - are": {"C_1", "--token=" + made},
	} {
		t.Setenv(cli.TransportEnv, "")
		if out, err := run(t.Context(), t, append([]string{"join"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}

	if _, err := workctl("token", "delete", token.ID(), "--hub-namespace="+hub); err != nil {
		t.Error(err)
	}
	if list, err := workctl("token", "list"); err != nil || strings.Contains(list, token.ID()) {
		t.Errorf("%v: the list still has %s:\n%s", err, token.ID(), list)
	}
}
