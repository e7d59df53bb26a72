package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
)

// joinOptions are the flags for clusters that join over the broker.
type joinOptions struct {
	enabled           bool
	certFile, keyFile string
	signCommand       string
	signerName        string
	validity, rejoin  time.Duration
}

func newJoinOptions() joinOptions {
	return joinOptions{signerName: v1alpha1.AgentSignerName, validity: hub.DefaultCertificateValidity, rejoin: hub.DefaultRejoinWithin}
}

func (o *joinOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.enabled, "join", o.enabled, "let clusters join over the broker with tokens of workctl token create, and renew their certificates, see docs/join.md; "+
		"tokens are Secrets in the namespace of the Lease")
	fs.StringVar(&o.certFile, "join-authority-cert-file", o.certFile, "PEM file with the certificate of the authority that signs approved CertificateSigningRequests of agents; read again for each "+
		"(default none, and another signer signs those of --join-signer-name)")
	fs.StringVar(&o.keyFile, "join-authority-key-file", o.keyFile, "PEM file with its key")
	fs.StringVar(&o.signCommand, "join-sign-command", o.signCommand, "program that has its key, such as that of a KMS, in place of the file: it is run for each signature with the name of the hash as its argument, "+
		"reads the digest and prints the signature within 10s, see docs/join.md")
	fs.StringVar(&o.signerName, "join-signer-name", o.signerName, "signer name of the CertificateSigningRequests that another signer signs, such as clusterissuers.cert-manager.io/NAME for cert-manager")
	fs.DurationVar(&o.validity, "join-certificate-validity", o.validity, "how long certificates are valid that this hub signs; agents renew them at two thirds of it; at least 1m")
	fs.DurationVar(&o.rejoin, "rejoin-within", o.rejoin, "how long after the end of its certificate a cluster may get another one without a new token; 0 for never")
}

// validate reports every fault, with broker from the transport configuration of the hub.
func (o *joinOptions) validate(broker config.Config, file string) []error {
	var errs []error
	if o.keyFile != "" && o.signCommand != "" {
		errs = append(errs, errors.New("--join-authority-key-file and --join-sign-command are two places of one key: set one of them"))
	} else if (o.certFile == "") != (o.keyFile == "" && o.signCommand == "") {
		errs = append(errs, errors.New("--join-authority-cert-file and --join-authority-key-file, or --join-sign-command, belong together: set both, or neither"))
	}
	if !o.enabled {
		if o.certFile != "" {
			errs = append(errs, errors.New("--join-authority-cert-file needs --join"))
		}
		return errs
	}
	if o.validity < time.Minute {
		errs = append(errs, fmt.Errorf("--join-certificate-validity must be at least 1m, got %s", o.validity))
	}
	if o.rejoin < 0 {
		errs = append(errs, fmt.Errorf("--rejoin-within must not be negative, got %s", o.rejoin))
	}
	if domain, name, found := strings.Cut(o.signerName, "/"); !found || domain == "" || name == "" {
		errs = append(errs, fmt.Errorf("--join-signer-name must be DOMAIN/NAME, got %q", o.signerName))
	} else if o.certFile != "" && o.signerName != v1alpha1.AgentSignerName {
		errs = append(errs, errors.New("--join-signer-name is for another signer, and with --join-authority-cert-file the hub signs: set one of them"))
	}
	if broker.BrokerHost != "" && (broker.ClientCert.IsEmpty() || broker.CA.IsEmpty()) {
		errs = append(errs, fmt.Errorf("--join needs clientCertFile, clientKeyFile and caFile in %s: the hub signs its answers with that certificate", file))
	}
	if o.certFile != "" && (o.keyFile != "" || o.signCommand != "") {
		if _, err := o.authority(); err != nil {
			errs = append(errs, fmt.Errorf("--join-authority-cert-file, %s: %w", map[bool]string{true: "--join-sign-command", false: "--join-authority-key-file"}[o.signCommand != ""], err))
		}
	}
	return errs
}

// authority reads the authority that signs.
func (o *joinOptions) authority() (tls.Certificate, error) {
	if o.signCommand != "" {
		return certificates.CommandAuthority(o.certFile, o.signCommand)
	}
	return tls.LoadX509KeyPair(o.certFile, o.keyFile)
}

// joining returns what answers requests to join; nil without --join.
func (o *options) joining(logger *slog.Logger) (*hub.Joining, error) {
	if !o.joins.enabled {
		return nil, nil
	}
	broker := o.broker
	broker.SessionExpiry = time.Minute // clusters ask again
	transport, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: o.clientID + "-joins", Logger: logger.With("connection", "joins")})
	if err != nil {
		return nil, err
	}
	j := &hub.Joining{
		Transport: transport, Namespace: o.leader.Namespace, SignerName: o.joins.signerName, Validity: o.joins.validity, Rejoin: o.joins.rejoin,
		Certificate: func() (tls.Certificate, error) {
			certs, err := o.broker.Certificates()
			if err != nil {
				return tls.Certificate{}, err
			}
			return tls.X509KeyPair(certs.ClientCert, certs.ClientKey)
		},
		Trust: func() ([]byte, error) {
			certs, err := o.broker.Certificates()
			return certs.CA, err
		},
	}
	if o.joins.certFile != "" {
		j.Authority, j.AuthorityElsewhere = o.joins.authority, o.joins.signCommand != ""
	}
	return j, nil
}
