package main

import (
	"encoding/binary"
	"flag"
	"log"
	"net"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
)

// The option that names bootstrap servers, RFC 8572.
const redirect = 143

// A DHCP server with one address to give, for fewer seconds than other servers let themselves be told.
func lease(arguments []string) {
	flags := flag.NewFlagSet("lease", flag.ExitOnError)
	port := flags.String("port", "box0", "where it serves")
	own := flags.String("own", "192.0.2.1", "its own address, also the router")
	address := flags.String("address", "192.0.2.9", "what it gives")
	lasts := flags.Duration("lasts", 4*time.Second, "for how long")
	uri := flags.String("uri", "", "the bootstrap server")
	flags.Parse(arguments)

	self := net.ParseIP(*own)
	list := append(binary.BigEndian.AppendUint16(nil, uint16(len(*uri))), *uri...)
	server, err := server4.NewServer(*port, nil, func(conn net.PacketConn, peer net.Addr, request *dhcpv4.DHCPv4) {
		answers := map[dhcpv4.MessageType]dhcpv4.MessageType{
			dhcpv4.MessageTypeDiscover: dhcpv4.MessageTypeOffer,
			dhcpv4.MessageTypeRequest:  dhcpv4.MessageTypeAck,
		}
		kind, known := answers[request.MessageType()]
		if !known {
			return
		}
		answer, err := dhcpv4.NewReplyFromRequest(request,
			dhcpv4.WithMessageType(kind),
			dhcpv4.WithYourIP(net.ParseIP(*address)),
			dhcpv4.WithNetmask(net.CIDRMask(24, 32)),
			dhcpv4.WithRouter(self),
			dhcpv4.WithLeaseTime(uint32(lasts.Seconds())),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(self)),
			dhcpv4.WithGeneric(dhcpv4.GenericOptionCode(redirect), list),
		)
		must(err)
		log.Printf("%s of %s from %s", request.MessageType(), request.ClientIPAddr, peer)
		_, err = conn.WriteTo(answer.ToBytes(), peer)
		must(err)
	})
	must(err)
	log.Printf("listening on %s", *port)
	must(server.Serve())
}
