package hub

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"time"

	certificatesv1client "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/joins"
	"github.com/workwire/workwire/pkg/transport"
)

// Defaults of [Joining].
const (
	DefaultCertificateValidity = 90 * 24 * time.Hour
	DefaultRejoinWithin        = 365 * 24 * time.Hour
)

// Joining configures how clusters join over the broker, see docs/join.md.
type Joining struct {
	// Transport is a connection to the broker besides that of the hub; required. The hub runs it while it leads.
	Transport transport.Transport
	// Namespace has the Secrets of tokens; required.
	Namespace string
	// Certificate returns the hub's certificate at the broker, which signs answers; Trust the authorities for agents to trust, in PEM;
	// required.
	Certificate func() (tls.Certificate, error)
	Trust       func() ([]byte, error)
	// Authority returns the authority that signs approved CertificateSigningRequests; nil: another signer does. AuthorityElsewhere says that a
	// signature takes long, such as with [certificates.CommandAuthority]: clusters do not wait for those of others then.
	Authority          func() (tls.Certificate, error)
	AuthorityElsewhere bool
	// SignerName of the CertificateSigningRequests; default [v1alpha1.AgentSignerName].
	SignerName string
	// Validity is how long its certificates are valid; default 90 days.
	Validity time.Duration
	// Rejoin is how long after the end of its certificate a device may come back without a token; 0: not at all.
	Rejoin time.Duration
}

// buildJoins creates what lets clusters join.
func (h *Hub) buildJoins(client versioned.Interface) error {
	c := h.cfg.Joining
	if c == nil {
		return nil
	}
	certificates, err := certificatesv1client.NewForConfig(h.cfg.REST)
	if err != nil {
		return fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	j, err := joins.New(joins.Config{
		Core: h.core, Certificates: certificates, Writer: client, Clusters: h.informers.ManagedClusters(), Namespace: c.Namespace, Source: h.cfg.Source, Topics: h.cfg.Topics,
		Transport: c.Transport, Certificate: c.Certificate, Trust: c.Trust, Authority: c.Authority, AuthorityElsewhere: c.AuthorityElsewhere, SignerName: cmp.Or(c.SignerName, v1alpha1.AgentSignerName), Validity: cmp.Or(c.Validity, DefaultCertificateValidity), Rejoin: c.Rejoin,
		Registerer: h.cfg.Registerer, Logger: h.cfg.Logger,
	})
	if err != nil {
		return err
	}
	h.global = append(h.global, component{name: "joins", run: j.Run, ready: j.Ready})
	return nil
}
