// Package join makes the tokens with which clusters join, and what is applied on a cluster that has one (docs/join.md).
//
//	token, grant, err := join.TokenOf(hub, "", "joiner", password)
//	...
//	err = join.CreateToken(ctx, secrets, grant, time.Now())
//	manifests, err := join.TokenManifests(token.String())
package join

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
)

// Names that the chart and the kustomize base of the agent have.
const (
	Namespace = "open-cluster-management-agent"
	// MembershipSecret is the name of the Secret of a cluster with its token, and with its certificate later.
	MembershipSecret = "work-agent-join"
)

// TokenOf returns a token for the hub with a transport configuration, whose agents reach the broker at another address unless that is
// empty, with the joining identity at the broker.
func TokenOf(hub config.Config, broker, username, password string) (enrolment.Token, enrolment.Grant, error) {
	source, one := wire.SourceID(""), false
	if topics, err := hub.Topics.ForAgent("any"); err == nil {
		source, one = topics.Source()
	}
	if !one {
		return enrolment.Token{}, enrolment.Grant{}, errors.New("the topics of the transport configuration name no source, as those of a hub do")
	}
	certs, err := hub.Certificates()
	if err != nil {
		return enrolment.Token{}, enrolment.Grant{}, err
	}
	t := enrolment.Token{
		Broker: hub.BrokerHost, HubName: hub.HubName, Topics: hub.Topics, Source: source, Username: username, Password: password,
	}
	if broker != "" {
		// Names of objects on the cluster have the identity of the hub in them, which must not change with an address.
		if t.HubName == "" {
			t.HubName = hub.BrokerHost
		}
		t.Broker = broker
	}
	for block, rest := pem.Decode(certs.CA); block != nil; block, rest = pem.Decode(rest) {
		t.Authorities = append(t.Authorities, block.Bytes)
	}
	return enrolment.New(t)
}

// CreateToken stores a grant on the hub, in the namespace where it looks for them.
func CreateToken(ctx context.Context, secrets corev1client.SecretInterface, grant enrolment.Grant, now time.Time) error {
	if err := grant.Validate(now); err != nil {
		return err
	}
	text, err := json.Marshal(grant)
	if err != nil {
		return err
	}
	_, err = secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.JoinTokenNamePrefix + grant.ID()}, Type: v1alpha1.JoinTokenSecretType,
		Data: map[string][]byte{v1alpha1.JoinTokenKey: text},
	}, metav1.CreateOptions{})
	return err
}

// Tokens returns the grants on the hub, the one that expires first first.
func Tokens(ctx context.Context, secrets corev1client.SecretInterface) ([]enrolment.Grant, error) {
	list, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("type", v1alpha1.JoinTokenSecretType).String()})
	if err != nil {
		return nil, err
	}
	var grants []enrolment.Grant
	for _, secret := range list.Items {
		var g enrolment.Grant
		if err := json.Unmarshal(secret.Data[v1alpha1.JoinTokenKey], &g); err == nil {
			grants = append(grants, g)
		}
	}
	slices.SortFunc(grants, func(a, b enrolment.Grant) int { return a.Expires.Compare(b.Expires) })
	return grants, nil
}

// JoinedWith returns the names of the clusters that have joined with each token, by its id.
func JoinedWith(ctx context.Context, clients versioned.Interface) (map[string][]string, error) {
	list, err := clients.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.JoinTokenLabelKey})
	if err != nil {
		return nil, err
	}
	joined := map[string][]string{}
	for _, cluster := range list.Items {
		for _, id := range v1alpha1.JoinTokens(&cluster) {
			joined[id] = append(joined[id], cluster.Name)
		}
	}
	return joined, nil
}

// DeleteToken deletes the grant with an id: nobody joins with its token any more.
func DeleteToken(ctx context.Context, secrets corev1client.SecretInterface, id string) error {
	return secrets.Delete(ctx, v1alpha1.JoinTokenNamePrefix+strings.TrimPrefix(id, v1alpha1.JoinTokenNamePrefix), metav1.DeleteOptions{})
}

// TokenManifests returns the namespace of the agent and the Secret that a cluster joins with, for kubectl apply on it.
func TokenManifests(token string) ([]byte, error) {
	secret, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": MembershipSecret, "namespace": Namespace},
		"stringData": map[string]string{v1alpha1.MembershipTokenKey: token},
	})
	return fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n---\n%s", Namespace, secret), err
}

// Revoke has the hub give a cluster no certificate any more, and no works, for a reason.
func Revoke(ctx context.Context, clients versioned.Interface, cluster, reason string, now time.Time) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{v1alpha1.RevokedAnnotationKey: strings.TrimSpace(now.UTC().Format(time.RFC3339) + " " + reason)}},
		"spec":     map[string]any{"hubAcceptsClient": false},
	})
	if err != nil {
		return err
	}
	_, err = clients.ClusterV1().ManagedClusters().Patch(ctx, cluster, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
