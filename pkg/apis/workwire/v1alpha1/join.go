package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of joining (docs/join.md).
const (
	// AgentSignerName is the signer name of CertificateSigningRequests for the certificates of agents. Who may approve
	// and sign for it decides which clusters get in.
	AgentSignerName = "workwire.dev/work-agent"
	// JoinTokenSecretType is the type of the Secrets of the hub's namespace that have what it keeps of a token.
	JoinTokenSecretType = "workwire.dev/join-token"
	// JoinTokenNamePrefix begins the names of those Secrets; the id of the token follows.
	JoinTokenNamePrefix = "workwire-join-token-"
	// JoinTokenKey is the key of such a Secret whose value is the token without its secret half, as JSON.
	JoinTokenKey = "grant"
	// MembershipTokenKey is the key of the Secret of a cluster whose value is the token that it joins with.
	MembershipTokenKey = "token"

	// DeviceAnnotationKey annotates a ManagedCluster with the hash of the device key that has joined as it. The hub writes it.
	DeviceAnnotationKey = "workwire.dev/device"
	// JoinTokenLabelKey labels a ManagedCluster with the id of the token that it has joined with. The hub writes it, and counts by it.
	JoinTokenLabelKey = "workwire.dev/join-token"
	// FormerJoinTokensAnnotationKey annotates a ManagedCluster with the ids of the tokens that it has joined with before that one and that
	// somebody could still use, comma-separated. The hub writes it, and counts by it.
	FormerJoinTokensAnnotationKey = "workwire.dev/former-join-tokens"
	// CertificateExpiresAnnotationKey annotates a ManagedCluster with when the last certificate expires that it got over the
	// broker, in RFC 3339. The hub writes it.
	CertificateExpiresAnnotationKey = "workwire.dev/certificate-expires"
	// CertificatesAnnotationKey annotates a ManagedCluster with the certificates that it got over the broker and that have not expired, and
	// the last one, as JSON (package enrolment). The hub writes it.
	CertificatesAnnotationKey = "workwire.dev/certificates"
	// RevokedAnnotationKey annotates a ManagedCluster whose device gets no certificate any more, with when and why that was
	// decided. workctl revoke writes it. The certificates that it has are revoked at the broker.
	RevokedAnnotationKey = "workwire.dev/revoked"

	// RevocationsConfigMap is the name of the ConfigMap in the hub's namespace with the certificates that are revoked: by the id of the source as
	// JSON, and by the same with ".crl" appended as a revocation list in PEM.
	RevocationsConfigMap = "workwire-revocations"

	// FirstAnnotationKey annotates a CertificateSigningRequest of a cluster that has had no certificate: when it is issued, the
	// hub accepts the cluster.
	FirstAnnotationKey = "workwire.dev/first-certificate"
	// SourceLabelKey labels a CertificateSigningRequest with the hub that has made it, which signs no others.
	SourceLabelKey = "workwire.dev/source"
	// ClusterLabelKey labels a CertificateSigningRequest with the cluster that asks.
	ClusterLabelKey = "workwire.dev/cluster"
)

// Reasons of the conditions of a CertificateSigningRequest.
const (
	// ReasonJoined (Approved True): a token lets the cluster in, or its device has joined before.
	ReasonJoined = "Joined"
	// ReasonNotOfAnAgent (Failed True): it is not for the certificate of an agent.
	ReasonNotOfAnAgent = "NotOfAnAgent"
)

// JoinTokens returns the ids of the tokens that devices have joined with as a cluster, the last one first; nil if none has.
func JoinTokens(cluster metav1.Object) []string {
	last := cluster.GetLabels()[JoinTokenLabelKey]
	if last == "" {
		return nil
	}
	tokens := []string{last}
	if former := cluster.GetAnnotations()[FormerJoinTokensAnnotationKey]; former != "" {
		tokens = append(tokens, strings.Split(former, ",")...)
	}
	return tokens
}
