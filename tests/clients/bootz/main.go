// Makes what a bootstrap needs on both sides, and serves bootstraps that are wrong in one place. Vouchers, owner
// certificates and signatures are made by the helper packages of the public bootz repository.
//
//	bootz generate -dir DIR -address IP:PORT -serial S [-streaming] [-secure] [-oc FILE] [-vendor FILE] ...
//	bootz lease -uri bootz://IP:PORT [-lasts 4s]
//	bootz serve -config DIR/bootz.textproto -fault voucher|expired|xml|serial|nonce|signature|trust|stall-data|stall-report|none
package main

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	ownercertificate "github.com/openconfig/bootz/common/owner_certificate"
	ownershipvoucher "github.com/openconfig/bootz/common/ownership_voucher"
	"github.com/openconfig/bootz/common/signature"
	bootztls "github.com/openconfig/bootz/common/tls"
	bpb "github.com/openconfig/bootz/proto/bootz"
	"github.com/openconfig/bootz/server/artifactmanager"
	"github.com/openconfig/bootz/server/chassismanager"
	cpb "github.com/openconfig/bootz/server/proto/config"
	"github.com/openconfig/bootz/server/service"
	apb "github.com/openconfig/gnsi/authz"
	"go.mozilla.org/pkcs7"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("say generate, serve or lease")
	}
	command, arguments := os.Args[1], os.Args[2:]
	switch command {
	case "generate":
		generate(arguments)
	case "serve":
		serve(arguments)
	case "lease":
		lease(arguments)
	default:
		log.Fatalf("%q is none of generate, serve and lease", command)
	}
}

// A certificate and its key.
type party struct {
	cert *x509.Certificate
	key  *rsa.PrivateKey
}

func newParty(name, serial string, by *party) *party {
	var caCert *x509.Certificate
	var caKey crypto.PrivateKey
	if by != nil {
		caCert, caKey = by.cert, by.key
	}
	cert, key, err := ownercertificate.NewRSACertificate(name, serial, caCert, caKey)
	must(err)
	return &party{cert, key}
}

func (p *party) pair() *cpb.CertKeyPair {
	key, err := x509.MarshalPKCS8PrivateKey(p.key)
	must(err)
	encode := base64.StdEncoding.EncodeToString
	return &cpb.CertKeyPair{Cert: encode(p.cert.Raw), Key: encode(key)}
}

func generate(arguments []string) {
	flags := flag.NewFlagSet("generate", flag.ExitOnError)
	dir := flags.String("dir", ".", "folder for all files")
	address := flags.String("address", "127.0.0.1:15006", "where the server listens")
	serial := flags.String("serial", "HF-1", "serial number of the box")
	streaming := flags.Bool("streaming", false, "the server has a stream for the box")
	oc := flags.String("oc", "", "file with oc_config")
	vendor := flags.String("vendor", "", "file with vendor_config")
	dynamic := flags.String("dynamic-oc", "", "file with dynamic_oc_config")
	authz := flags.String("authz", "", "file with an authz upload, in text")
	image := flags.String("image", "", "file with an intended_image, in text")
	flags.Parse(arguments)

	maker, domain := newParty("Vendor CA", "", nil), newParty("Pinned Domain", "", nil)
	owner, trust := newParty("Owner", "", domain), newParty("Trust Anchor", "", nil)
	idevid := newParty("IDevID", *serial, maker)
	voucher, err := ownershipvoucher.NewOwnershipVoucher("json", *serial, domain.cert, maker.cert, maker.key)
	must(err)
	chassis := &cpb.Chassis{
		Manufacturer:       "Holdfast",
		BootMode:           bpb.BootMode_BOOT_MODE_SECURE,
		StreamingSupported: *streaming,
		BootPasswordHash:   "$5$salt$of a boot loader",
		ControlCards: []*cpb.ControlCard{{
			SerialNumber:     *serial,
			OwnershipVoucher: base64.StdEncoding.EncodeToString(voucher),
		}},
		BootConfig: &bpb.BootConfig{
			OcConfig:        content(*oc),
			VendorConfig:    content(*vendor),
			DynamicOcConfig: content(*dynamic),
		},
	}
	if *authz != "" {
		chassis.Authz = &apb.UploadRequest{}
		must(prototext.Unmarshal(content(*authz), chassis.Authz))
	}
	if *image != "" {
		chassis.IntendedImage = &bpb.SoftwareImage{}
		must(prototext.Unmarshal(content(*image), chassis.IntendedImage))
	}
	config := &cpb.Config{
		ServerAddress:    *address,
		TrustAnchor:      trust.pair(),
		OwnerCertificate: owner.pair(),
		VendorCaCerts:    []string{base64.StdEncoding.EncodeToString(maker.cert.Raw)},
		Chassis:          []*cpb.Chassis{chassis},
	}
	text, err := prototext.MarshalOptions{Multiline: true}.Marshal(config)
	must(err)
	write(*dir, "bootz.textproto", text)
	write(*dir, "an-image", []byte("an image"))
	write(*dir, "idevid.pem", block("CERTIFICATE", idevid.cert.Raw))
	key, err := x509.MarshalPKCS8PrivateKey(idevid.key)
	must(err)
	write(*dir, "idevid.key", block("PRIVATE KEY", key))
	write(*dir, "vendor.pem", block("CERTIFICATE", maker.cert.Raw))
	key, err = x509.MarshalPKCS8PrivateKey(maker.key)
	must(err)
	write(*dir, "vendor.key", block("PRIVATE KEY", key))
}

// The service of the public repository, of whose unary answers one thing is wrong.
type faulty struct {
	*service.Service
	fault string
	owner *party
	maker *party
	last  *bpb.GetBootstrapDataResponse
}

// The helper package writes the certificate into XML as it is, and makes no voucher whose time is over.
type xmlVoucher struct {
	XMLName          xml.Name `xml:"urn:ietf:params:xml:ns:yang:ietf-voucher voucher"`
	CreatedOn        string   `xml:"created-on"`
	ExpiresOn        string   `xml:"expires-on"`
	Assertion        string   `xml:"assertion"`
	SerialNumber     string   `xml:"serial-number"`
	PinnedDomainCert string   `xml:"pinned-domain-cert"`
}

// What the vendor says in a voucher, changed and signed again.
func (f *faulty) revouch(voucher []byte, write func(*ownershipvoucher.OwnershipVoucher) ([]byte, error)) ([]byte, error) {
	said, err := ownershipvoucher.Unmarshal(voucher, nil)
	must(err)
	text, err := write(said)
	must(err)
	signed, err := pkcs7.NewSignedData(text)
	must(err)
	signed.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	must(signed.AddSigner(f.maker.cert, f.maker.key, pkcs7.SignerInfoConfig{}))
	return signed.Finish()
}

func expired(voucher *ownershipvoucher.OwnershipVoucher) ([]byte, error) {
	voucher.OV.CreatedOn = time.Now().Add(-48 * time.Hour).Format(time.RFC3339)
	voucher.OV.ExpiresOn = time.Now().Add(-24 * time.Hour).Format(time.RFC3339)
	return json.Marshal(voucher)
}

func inXML(voucher *ownershipvoucher.OwnershipVoucher) ([]byte, error) {
	said := voucher.OV
	return xml.Marshal(xmlVoucher{
		CreatedOn: said.CreatedOn, ExpiresOn: said.ExpiresOn, Assertion: said.Assertion, SerialNumber: said.SerialNumber,
		PinnedDomainCert: base64.StdEncoding.EncodeToString(said.PinnedDomainCert),
	})
}

func (f *faulty) ReportStatus(ctx context.Context, request *bpb.ReportStatusRequest) (*bpb.EmptyResponse, error) {
	if f.fault == "stall-report" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f.Service.ReportStatus(ctx, request)
}

func (f *faulty) GetBootstrapData(ctx context.Context, request *bpb.GetBootstrapDataRequest) (*bpb.GetBootstrapDataResponse, error) {
	answer, err := f.Service.GetBootstrapData(ctx, request)
	if err != nil {
		return nil, err
	}
	switch f.fault {
	case "none", "stall-report":
	case "stall-data":
		<-ctx.Done()
		return nil, ctx.Err()
	case "expired":
		answer.OwnershipVoucher, err = f.revouch(answer.OwnershipVoucher, expired)
	case "xml": // nothing is wrong with it
		answer.OwnershipVoucher, err = f.revouch(answer.OwnershipVoucher, inXML)
	case "voucher": // by a vendor that the box does not know
		stranger, domain := newParty("Stranger", "", nil), newParty("Domain", "", nil)
		serial := request.GetControlCardState().GetSerialNumber()
		answer.OwnershipVoucher, err = ownershipvoucher.NewOwnershipVoucher("json", serial, domain.cert, stranger.cert, stranger.key)
	case "serial": // signed data for another box
		err = f.resign(answer, func(data *bpb.BootstrapDataSigned) { data.Responses[0].SerialNum = "another" })
	case "signature":
		answer.SerializedBootstrapData = append(answer.SerializedBootstrapData, 0x1a, 0)
	case "nonce": // what was answered before is answered again
		if f.last == nil {
			f.last = proto.Clone(answer).(*bpb.GetBootstrapDataResponse)
			err = f.resign(f.last, func(data *bpb.BootstrapDataSigned) { data.Nonce = "of an earlier request" })
		}
		answer = f.last
	default:
		log.Fatalf("%q is no fault", f.fault)
	}
	return answer, err
}

func (f *faulty) resign(answer *bpb.GetBootstrapDataResponse, change func(*bpb.BootstrapDataSigned)) error {
	data := &bpb.BootstrapDataSigned{}
	must(proto.Unmarshal(answer.SerializedBootstrapData, data))
	change(data)
	octets, err := proto.Marshal(data)
	must(err)
	signed, err := signature.Sign(f.owner.key, f.owner.cert.SignatureAlgorithm, octets)
	answer.SerializedBootstrapData = octets
	answer.ResponseSignature = base64.StdEncoding.EncodeToString(signed)
	return err
}

func serve(arguments []string) {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	file := flags.String("config", "bootz.textproto", "what generate wrote")
	fault := flags.String("fault", "none", "what is wrong")
	flags.Parse(arguments)

	config := &cpb.Config{}
	must(prototext.Unmarshal(content(*file), config))
	artifacts, err := artifactmanager.New(config)
	must(err)
	trustCert, trustKey := artifacts.BootzServerTrustAnchorKeyPair()
	ownerCert, ownerKey := artifacts.OwnerCertificateKeyPair()
	host, _, err := net.SplitHostPort(config.GetServerAddress())
	must(err)
	if *fault == "trust" { // a server whose certificate leads to nothing that the data names
		stranger := newParty("Stranger", "", nil)
		trustCert, trustKey, *fault = stranger.cert, stranger.key, "none"
	}
	served, err := bootztls.TLSConfiguration(&bootztls.Opts{
		CAPrivateKey:      trustKey,
		CACert:            trustCert,
		IPAddress:         net.ParseIP(host),
		ClientCAs:         artifacts.VendorCABundle(),
		ServerCertSubject: &pkix.Name{CommonName: "server"},
	})
	must(err)
	inner, err := service.New(artifacts, chassismanager.New(config), nil)
	must(err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(served)))
	owner, maker := &party{ownerCert, ownerKey.(*rsa.PrivateKey)}, readParty(filepath.Dir(*file), "vendor")
	bpb.RegisterBootstrapServer(server, &faulty{Service: inner, fault: *fault, owner: owner, maker: maker})
	go files(net.JoinHostPort(host, "8443"), filepath.Dir(*file), served)
	listener, err := net.Listen("tcp", config.GetServerAddress())
	must(err)
	log.Printf("listening on %s", listener.Addr())
	must(server.Serve(listener))
}

// The image, over HTTPS, by the same certificate.
func files(address, dir string, config *tls.Config) {
	config = config.Clone()
	config.NextProtos, config.ClientAuth = []string{"http/1.1"}, tls.NoClientCert
	mux := http.NewServeMux()
	mux.HandleFunc("/image", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(dir, "an-image"))
	})
	server := &http.Server{Addr: address, Handler: mux, TLSConfig: config}
	must(server.ListenAndServeTLS("", ""))
}

func readParty(dir, name string) *party {
	cert, _ := pem.Decode(content(filepath.Join(dir, name+".pem")))
	key, _ := pem.Decode(content(filepath.Join(dir, name+".key")))
	parsed, err := x509.ParseCertificate(cert.Bytes)
	must(err)
	private, err := x509.ParsePKCS8PrivateKey(key.Bytes)
	must(err)
	return &party{parsed, private.(*rsa.PrivateKey)}
}

func content(file string) []byte {
	if file == "" {
		return nil
	}
	octets, err := os.ReadFile(file)
	must(err)
	return octets
}

func write(dir, name string, octets []byte) { must(os.WriteFile(filepath.Join(dir, name), octets, 0o600)) }

func block(kind string, octets []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: octets})
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
